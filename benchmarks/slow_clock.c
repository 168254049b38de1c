/* Preloaded into a process under valgrind. Time passes SLOW times slower for it: a step takes
 * tens of times as long there, and nothing that goes by time is to notice. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <valgrind/valgrind.h>

typedef struct timespec timespec;
static long long started;

static long long ns_of(const timespec *at) { return at->tv_sec * 1000000000LL + at->tv_nsec; }
static timespec at_of(long long ns) { return (timespec){ns / 1000000000, ns % 1000000000}; }
static long long base(clockid_t clock) { return clock == CLOCK_REALTIME ? started : 0; }
__attribute__((constructor)) static void start(void) {
  timespec at;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &at);
  started = ns_of(&at);
}
static timespec real(clockid_t clock, const timespec *at) {
  return at_of(base(clock) + (ns_of(at) - base(clock)) * SLOW);
}
static int longer(int ms) { return ms > INT_MAX / SLOW ? INT_MAX : ms * SLOW; }
#define ORIGINAL(name, version) \
  static __typeof__(&name) original; \
  if (!original) \
  original = (__typeof__(&name))dlvsym(RTLD_NEXT, #name, version)

int clock_gettime(clockid_t clock, timespec *at) {
  int failed = syscall(SYS_clock_gettime, clock, at);
  if (!failed)
    *at = at_of(base(clock) + (ns_of(at) - base(clock)) / SLOW);
  return failed;
}
int nanosleep(const timespec *asked, timespec *left) {
  timespec at = real(CLOCK_MONOTONIC, asked);
  return syscall(SYS_nanosleep, &at, left);
}
int clock_nanosleep(clockid_t clock, int flags, const timespec *asked, timespec *left) {
  timespec at = real(flags & TIMER_ABSTIME ? clock : CLOCK_MONOTONIC, asked);
  ORIGINAL(clock_nanosleep, "GLIBC_2.17");
  return original(clock, flags, &at, left);
}
int sem_clockwait(sem_t *semaphore, clockid_t clock, const timespec *until) {
  timespec at = real(clock, until);
  ORIGINAL(sem_clockwait, "GLIBC_2.34");
  return original(semaphore, clock, &at);
}
int sem_timedwait(sem_t *semaphore, const timespec *until) {
  return sem_clockwait(semaphore, CLOCK_REALTIME, until);
}
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                           const timespec *until) {
  timespec at = real(CLOCK_MONOTONIC, until);
  ORIGINAL(pthread_cond_timedwait, "GLIBC_2.3.2");
  return original(condition, lock, &at);
}
int epoll_wait(int poll, struct epoll_event *events, int most, int ms) {
  ORIGINAL(epoll_wait, "GLIBC_2.3.2");
  return original(poll, events, most, longer(ms));
}

/* The first time it begins to count; then it writes what all threads have executed since. */
void write_counters(void) {
  VALGRIND_MONITOR_COMMAND("instrumentation on");
  VALGRIND_MONITOR_COMMAND("v.info scheduler"); /* ids of threads, for the log */
  VALGRIND_MONITOR_COMMAND("dump");
}
