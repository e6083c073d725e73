/* The wall clock of a process, off by as many seconds as a file says at this moment.
 *
 * Preloaded by bent_clock.rs. All other clocks are the kernel's. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead_seconds;

__attribute__((constructor)) static void open_file(void)
{
    const char *path = getenv("BENT_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        abort();
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED)
        abort();
    ahead_seconds = page;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    long failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME && ahead_seconds)
        now->tv_sec += *ahead_seconds;
    return (int)failed;
}
