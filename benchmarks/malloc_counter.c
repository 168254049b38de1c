/* Counts what a thread asks the C library for, and gets; preloaded before it by memory_truth.py. */
#define _GNU_SOURCE
#include <stddef.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

static __thread unsigned long long bytes __attribute__((tls_model("initial-exec")));
static __thread unsigned long long calls __attribute__((tls_model("initial-exec")));

static void *count(void *block, size_t size) {
  bytes += block ? size : 0;
  calls += block != NULL;
  return block;
}
void *malloc(size_t size) { return count(__libc_malloc(size), size); }
void *calloc(size_t number, size_t size) {
  return count(__libc_calloc(number, size), number * size);
}
void *realloc(void *block, size_t size) { return count(__libc_realloc(block, size), size); }

unsigned long long counted_bytes(void) { return bytes; }
unsigned long long counted_calls(void) { return calls; }
