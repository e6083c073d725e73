/* A storm beside one healthy client: the client asks 500 times a second, and its latency is told before, during and after.
 *
 *   cc -O2 -pthread -o storm examples/storm.c
 *   ./storm PORT connect CONNECTIONS SECONDS PATH    all connect at once, ask once, and connect again after a failure
 *   ./storm PORT head|body|deaf CONNECTIONS SECONDS PATH    a byte of a head, or of a body, a second; or no answer is read
 *
 * With a sixth argument the healthy client connects from that address. Two threads: the storm's, and the healthy client's,
 * which goes first where the system allows it (SCHED_FIFO). See docs/lab/2026-11-27-overload.md.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 512, SAMPLES_MAX = 100000, BURST = 256, DEAF_ASKS = 64 };

static struct sockaddr_in node, source;
static char request[512];
static int request_len;
static volatile int phase; /* 0 calm, 1 storm, 2 afterwards, 3 the end */
static long samples[3][SAMPLES_MAX];
static int counts[3];
static long answered, refused, lost, connects;

static long now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static void nap_until(long at_us) {
  struct timespec t = {at_us / 1000000, at_us % 1000000 * 1000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
  }
}

static int dial(int flags, const struct sockaddr_in *from) {
  int fd = socket(AF_INET, SOCK_STREAM | flags, 0), one = 1;
  if (fd < 0) {
    perror("socket");
    exit(1);
  }
  if (from && bind(fd, (struct sockaddr *)from, sizeof *from) < 0) {
    perror("bind");
    exit(1);
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(fd, (struct sockaddr *)&node, sizeof node) < 0 && errno != EINPROGRESS) {
    perror("connect");
    exit(1);
  }
  return fd;
}

/* One connection that stays, a request every 2 ms; late ones are timed from when they were due. */
static void *healthy(void *nothing) {
  static char answer[65536];
  struct sched_param first = {.sched_priority = 1};
  if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &first))
    fprintf(stderr, "the healthy client waits for the storm's thread: no SCHED_FIFO\n");
  int fd = dial(0, source.sin_family ? &source : NULL);
  long due_us = now_us();
  (void)nothing;
  while (phase < 3) {
    nap_until(due_us);
    int of = phase;
    if (of > 2) break;
    if (write(fd, request, request_len) != request_len || read(fd, answer, sizeof answer) <= 0) {
      fprintf(stderr, "the healthy client lost its connection\n");
      exit(1);
    }
    if (memcmp(answer + 9, "200", 3)) fprintf(stderr, "the healthy client got %.3s\n", answer + 9);
    if (counts[of] < SAMPLES_MAX) samples[of][counts[of]++] = now_us() - due_us;
    due_us += 2000;
  }
  return NULL;
}

static int by_size(const void *a, const void *b) {
  long x = *(const long *)a, y = *(const long *)b;
  return x < y ? -1 : x > y;
}

static void tell(const char *when, int of) {
  int n = counts[of];
  qsort(samples[of], n, sizeof(long), by_size);
  printf("%-10s %6d answers, p50 %6ld us, p99 %6ld us, longest %7ld us\n", when, n, n ? samples[of][n / 2] : 0,
         n ? samples[of][n * 99 / 100] : 0, n ? samples[of][n - 1] : 0);
}

static int *fds;
static char *is_sent;
static int epoll;

static void watch(int i) {
  struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u32 = i};
  fds[i] = dial(SOCK_NONBLOCK, NULL);
  is_sent[i] = 0;
  connects++;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &e);
}

static void hear(const char *kind, int i) {
  static char answer[65536];
  ssize_t n = read(fds[i], answer, sizeof answer);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    lost++;
    close(fds[i]);
    fds[i] = -1;
    /* One that gave up in a storm of connections comes again; a slow one was ended by its deadline. */
    if (!strcmp(kind, "connect")) watch(i);
  } else if (n > 12 && !memcmp(answer + 9, "200", 3)) answered++;
  else refused++;
}

int main(int argc, char **argv) {
  if (argc != 6 && argc != 7) {
    fprintf(stderr, "usage: %s PORT connect|head|body|deaf CONNECTIONS SECONDS PATH [SOURCE]\n", argv[0]);
    return 2;
  }
  const char *kind = argv[2];
  int count = atoi(argv[3]);
  long seconds = atol(argv[4]);
  int is_slow = strcmp(kind, "connect"), is_deaf = !strcmp(kind, "deaf");
  const char *body = "PUT /v0/entity?id=slow HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n";
  const char *slow = !strcmp(kind, "body") ? body : "GET /v0/entity?id=slow HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ";
  request_len = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", argv[5]);
  node.sin_family = AF_INET;
  node.sin_port = htons(atoi(argv[1]));
  node.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (argc == 7) {
    source.sin_family = AF_INET;
    source.sin_addr.s_addr = inet_addr(argv[6]);
  }
  fds = calloc(count, sizeof *fds);
  is_sent = calloc(count, 1);
  epoll = epoll_create1(0);
  pthread_t thread;
  pthread_create(&thread, NULL, healthy, NULL);
  nap_until(now_us() + seconds * 1000000);
  phase = 1;
  long began_us = now_us(), drip_us = began_us, all_us = 0;
  int begun = 0;
  while (now_us() < began_us + seconds * 1000000) {
    /* As fast as one thread connects; in pieces, so that it sends and hears in between. */
    for (int n = 0; n < BURST && begun < count; n++) watch(begun++);
    struct epoll_event events[EVENTS];
    int n = epoll_wait(epoll, events, EVENTS, begun < count ? 0 : 10);
    for (int j = 0; j < n; j++) {
      int i = events[j].data.u32;
      if (fds[i] < 0) continue;
      if ((events[j].events & EPOLLOUT) && !is_sent[i]) {
        is_sent[i] = 1;
        if (is_deaf) {
          for (int k = 0; k < DEAF_ASKS; k++)
            if (write(fds[i], request, request_len) < 0) break;
        } else if (is_slow) {
          if (write(fds[i], slow, strlen(slow)) < 0) lost++;
        } else if (write(fds[i], request, request_len) < 0) lost++;
      }
      if (!is_deaf && (events[j].events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))) hear(kind, i);
    }
    if (!all_us && answered + refused >= count) all_us = now_us() - began_us;
    if (is_slow && !is_deaf && now_us() >= drip_us + 1000000) {
      drip_us = now_us();
      for (int i = 0; i < begun; i++)
        if (fds[i] >= 0 && is_sent[i] && write(fds[i], "y", 1) < 0 && errno != EAGAIN) lost++;
    }
  }
  phase = 2;
  /* All hang up at once: that is a part of what comes afterwards. */
  for (int i = 0; i < begun; i++)
    if (fds[i] >= 0) close(fds[i]);
  nap_until(now_us() + seconds * 1000000);
  phase = 3;
  pthread_join(thread, NULL);
  printf("%s, %d connections: %ld connects, %ld answered, %ld refused, %ld lost, all had an answer after %ld ms\n", kind,
         count, connects, answered, refused, lost, all_us / 1000);
  tell("calm", 0);
  tell("storm", 1);
  tell("afterwards", 2);
}
