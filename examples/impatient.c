/* Impatient clients: each has one connection, asks, waits so long for the answer, then closes, connects and asks again.
 *
 *   cc -O2 -o impatient examples/impatient.c
 *   ./impatient PORT CLIENTS SECONDS PATIENCE_MS PATH       answers in time, second by second
 *
 * One thread. 503 is not counted as an answer in time. See docs/lab/README.md.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 512, ANSWER_BYTES = 8192, SAMPLES_MAX = 4000000 };

struct client {
  int fd;
  int is_sent;
  long began_us;
  int before, behind; /* the clients that give up sooner, and later */
};

static struct client *clients;
static int first = -1, last = -1; /* the client that began first gives up first */
static int epoll;
static struct sockaddr_in node;
static char request[512];
static size_t request_len;
static long patience_us;
static long in_time, refused, gave_up, failed, connects;
static long samples[SAMPLES_MAX], sample_count;

static long now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static void leave_line(int i) {
  struct client *c = &clients[i];
  if (c->before >= 0) clients[c->before].behind = c->behind;
  else if (first == i) first = c->behind;
  if (c->behind >= 0) clients[c->behind].before = c->before;
  else if (last == i) last = c->before;
  c->before = c->behind = -1;
}

static void begin(int i, long t) {
  clients[i].began_us = t;
  clients[i].before = last;
  clients[i].behind = -1;
  if (last >= 0) clients[last].behind = i;
  else first = i;
  last = i;
}

static void connect_anew(int i, long t) {
  struct client *c = &clients[i];
  if (c->fd >= 0) close(c->fd);
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (c->fd < 0) {
    perror("socket");
    exit(1);
  }
  int one = 1;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  c->is_sent = 0;
  connects++;
  if (connect(c->fd, (struct sockaddr *)&node, sizeof node) < 0 && errno != EINPROGRESS) failed++;
  struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u32 = i};
  epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
  begin(i, t);
}

static void ask(int i) {
  struct client *c = &clients[i];
  if (!c->is_sent && write(c->fd, request, request_len) == (ssize_t)request_len) c->is_sent = 1;
}

static void hear(int i) {
  static char answer[ANSWER_BYTES];
  struct client *c = &clients[i];
  ssize_t n = read(c->fd, answer, sizeof answer);
  long t = now_us();
  if (n < 0 && errno == EAGAIN) return;
  leave_line(i);
  if (n <= 0) {
    failed++;
    connect_anew(i, t);
    return;
  }
  if (n > 12 && !memcmp(answer + 9, "503", 3)) refused++;
  else if (t - c->began_us <= patience_us) {
    in_time++;
    if (sample_count < SAMPLES_MAX) samples[sample_count++] = t - c->began_us;
  }
  c->is_sent = 0;
  begin(i, t);
  ask(i);
}

static int by_size(const void *a, const void *b) {
  long x = *(const long *)a, y = *(const long *)b;
  return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: %s PORT CLIENTS SECONDS PATIENCE_MS PATH\n", argv[0]);
    return 2;
  }
  int count = atoi(argv[2]);
  long seconds = atol(argv[3]), total = 0;
  patience_us = atol(argv[4]) * 1000;
  request_len = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", argv[5]);
  node.sin_family = AF_INET;
  node.sin_port = htons(atoi(argv[1]));
  node.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  clients = calloc(count, sizeof *clients);
  epoll = epoll_create1(0);
  for (int i = 0; i < count; i++) {
    clients[i].fd = clients[i].before = clients[i].behind = -1;
    connect_anew(i, now_us());
  }
  long end_of_second = now_us() + 1000000;
  printf("by second:");
  for (long second = 0; second < seconds;) {
    long t = now_us();
    if (t >= end_of_second) {
      printf(" %ld", in_time);
      fflush(stdout);
      total += in_time;
      in_time = 0;
      second++;
      end_of_second += 1000000;
    }
    while (first >= 0 && clients[first].began_us + patience_us <= t) {
      int i = first;
      leave_line(i);
      gave_up++;
      connect_anew(i, t);
    }
    struct epoll_event events[EVENTS];
    int n = epoll_wait(epoll, events, EVENTS, 1);
    for (int j = 0; j < n; j++) {
      int i = events[j].data.u32;
      if (events[j].events & EPOLLOUT) ask(i);
      if (events[j].events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP)) hear(i);
    }
  }
  qsort(samples, sample_count, sizeof *samples, by_size);
  printf("\n%d clients: in time %ld/s, refused %ld/s, gave up %ld/s, failed %ld, connects %ld/s, p50 %ld us, p99 %ld us\n",
         count, total / seconds, refused / seconds, gave_up / seconds, failed, connects / seconds,
         sample_count ? samples[sample_count / 2] : 0, sample_count ? samples[sample_count * 99 / 100] : 0);
}
