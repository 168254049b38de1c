/* ---- the hooks in Python's allocator ----
 *
 * Invariants.
 * - A hook in the place of a wrapped allocator keeps its ctx, and hands out its pointers unchanged. PyMem_SetAllocator
 *   writes five words while other threads read them; any mix of old and new ones is therefore an allocator that works.
 * - What a set of hooks wraps is written before the set is first installed, and never changed: a thread may be inside it.
 * - A hook touches no Python object, takes no GIL, and calls nothing that allocates through Python.
 * Requested bytes are a running total of the thread; request.h takes differences at the boundaries of steps and jobs.
 * realloc() counts as a request for its new size, zero bytes as one, as in CPython's raw allocator and in valgrind.
 */
enum { DOMAIN_RAW = 0, DOMAIN_MEM = 1, DOMAIN_OBJ = 2, DOMAINS = 3 };
enum { SET_COUNTS = 0, SET_OWNS = 1, SETS = 2 };
#define LAYERS 6 /* allocators that we can lie over in the life of a process; the same one again counts once */

typedef struct {
    void *ctx;
    void *(*malloc)(void *ctx, size_t size);
    void *(*calloc)(void *ctx, size_t count, size_t size);
    void *(*realloc)(void *ctx, void *block, size_t size);
    void (*free)(void *ctx, void *block);
} allocator_t;

typedef struct {
    unsigned long long bytes; /* running totals: of what was asked for; apart, or the compiler adds both as one vector */
    account_ref owner;        /* of what is allocated now */
    unsigned long long allocations, owned; /* owned: bytes of the blocks that got an owner */
    account_ref inherited; /* owner of the block that realloc() replaces, while nobody's step runs */
    size_t outer;          /* size that the caller asked of a domain above, until the raw hook takes it */
    unsigned int raw_calls;
    int forking; /* every shard's lock is held */
    PyObject *request;
    unsigned long long bytes_before, allocations_before, owned_before; /* at the last boundary */
} thread_t;

#ifdef __GLIBC__ /* elsewhere a library loaded at run time may not have that */
static __thread thread_t thread __attribute__((tls_model("initial-exec")));
#else
static __thread thread_t thread;
#endif

static allocator_t wrapped[LAYERS][DOMAINS];
static size_t small_limit;          /* requests up to it are never passed on to the raw domain by what we wrap */
static size_t own_from[DOMAINS];    /* blocks of this size and more get their owner in this domain's own hook */
static int many_gils;
static PyInterpreterState *main_interpreter;

/* One name or the other, by release. */
extern PyThreadState *_PyThreadState_UncheckedGet(void) __attribute__((weak));
extern PyThreadState *PyThreadState_GetUnchecked(void) __attribute__((weak));

static inline PyThreadState *current_state(void)
{
    return PyThreadState_GetUnchecked ? PyThreadState_GetUnchecked() : _PyThreadState_UncheckedGet();
}

/* For whoever is known to hold a GIL: whether it is the main interpreter's. */
static int under_main_gil(void)
{
    if (!many_gils)
        return 1;
    PyThreadState *state = current_state();
    return state != NULL && PyThreadState_GetInterpreter(state) == main_interpreter;
}

/* For anybody. Where each interpreter has its GIL the current state is the thread's own; before, it was the process's. */
static int has_main_gil(void)
{
    PyThreadState *state = current_state();
    if (state == NULL)
        return 0;
    return many_gils ? PyThreadState_GetInterpreter(state) == main_interpreter : state == PyGILState_GetThisThreadState();
}

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))

INLINE size_t asked(size_t size)
{
    return size + !size;
}

/* ---- domains under the GIL: PyMem_* and PyObject_* ---- */

static inline void own(void *block, size_t size, account_ref owner)
{
    account_t *account = account_of(owner);
    if (account == NULL)
        return;
    int kept = size <= MOST_SMALL ? keep_small(block, size, owner, account)
                                  : under_main_gil() && keep_large(block, size, owner);
    if (kept && owner == thread.owner)
        thread.owned += size;
}

static inline int take(void *block, value_t *found)
{
    return take_small(block, found) || (gil_table.used != 0 && under_main_gil() && take_large(block, found));
}

/* The raw domain may be called below, and counts then, too: what it has added is set right afterwards. */
typedef struct {
    unsigned long long bytes, allocations;
    unsigned int raw_calls;
} before_t;

INLINE before_t enter(size_t size)
{
    before_t before = {thread.bytes, thread.allocations, thread.raw_calls};
    thread.outer = asked(size);
    return before;
}

INLINE void leave(before_t before, size_t size, const void *block)
{
    thread.outer = 0;
    thread.bytes = before.bytes + (block != NULL ? asked(size) : 0);
    thread.allocations = before.allocations + (block != NULL);
}

INLINE void own_unless_raw(before_t before, void *block, size_t size, int domain, account_ref owner)
{
    if (owner != 0 && block != NULL && asked(size) >= own_from[domain] && thread.raw_calls == before.raw_calls)
        own(block, asked(size), owner);
}

NOINLINE void *large_malloc(const allocator_t *below, void *ctx, size_t size, int domain)
{
    before_t before = enter(size);
    void *block = below->malloc(ctx, size);
    leave(before, size, block);
    own_unless_raw(before, block, size, domain, thread.owner);
    return block;
}

NOINLINE void *large_calloc(const allocator_t *below, void *ctx, size_t count, size_t size, int domain)
{
    before_t before = enter(count * size);
    void *block = below->calloc(ctx, count, size);
    leave(before, count * size, block);
    own_unless_raw(before, block, count * size, domain, thread.owner);
    return block;
}

NOINLINE void *any_realloc(const allocator_t *below, void *ctx, void *block, size_t size, int domain, int owns)
{
    value_t old = {0, 0};
    int had_owner = owns && take(block, &old);
    thread.inherited = old.owner;
    before_t before = enter(size);
    void *moved = below->realloc(ctx, block, size);
    leave(before, size, moved);
    thread.inherited = 0;
    if (moved == NULL && had_owner)
        own(block, old.size, old.owner);
    own_unless_raw(before, moved, size, domain, thread.owner != 0 ? thread.owner : old.owner);
    return moved;
}

INLINE int is_small(size_t size)
{
    return __builtin_expect(size - 1 < small_limit, 1); /* zero bytes are not: they go to the raw domain */
}

INLINE void *counting_malloc(const allocator_t *below, void *ctx, size_t size, int domain)
{
    if (!is_small(size))
        return large_malloc(below, ctx, size, domain);
    thread.bytes += size;
    thread.allocations++;
    return below->malloc(ctx, size);
}

INLINE void *counting_calloc(const allocator_t *below, void *ctx, size_t count, size_t size, int domain)
{
    if (!is_small(count * size))
        return large_calloc(below, ctx, count, size, domain);
    thread.bytes += count * size;
    thread.allocations++;
    return below->calloc(ctx, count, size);
}

INLINE void *own_word(void *block, size_t size, int domain)
{
    /* The thread holds its request, and that the account. */
    if (thread.owner != 0 && block != NULL && size >= own_from[domain] &&
        keep_small(block, size, thread.owner, &accounts[(unsigned int)thread.owner]))
        thread.owned += size;
    return block;
}

INLINE void *owning_malloc(const allocator_t *below, void *ctx, size_t size, int domain)
{
    if (!is_small(size))
        return large_malloc(below, ctx, size, domain);
    thread.bytes += size;
    thread.allocations++;
    return own_word(below->malloc(ctx, size), size, domain);
}

INLINE void *owning_calloc(const allocator_t *below, void *ctx, size_t count, size_t size, int domain)
{
    if (!is_small(count * size))
        return large_calloc(below, ctx, count, size, domain);
    thread.bytes += count * size;
    thread.allocations++;
    return own_word(below->calloc(ctx, count, size), count * size, domain);
}

NOINLINE void take_and_free(const allocator_t *below, void *ctx, void *block)
{
    value_t old;
    if (block != NULL && under_main_gil())
        take_large(block, &old);
    below->free(ctx, block);
}

INLINE void owning_free(const allocator_t *below, void *ctx, void *block)
{
    unsigned int *word = word_of(block);
    if (word != NULL && *word != 0 && has_word(block))
        drop_word(word);
    else if (__builtin_expect(gil_table.used != 0, 0)) {
        take_and_free(below, ctx, block);
        return;
    }
    below->free(ctx, block);
}

/* ---- the raw domain: with or without the GIL ---- */

/* A block that a domain above has asked for will be freed under the GIL as well. */
static int own_raw(void *block, size_t size, account_ref owner, int from_above)
{
    if (from_above && under_main_gil())
        return account_of(owner) != NULL && keep_large(block, size, owner);
    return keep_raw(block, size, owner);
}

static int disown_raw(void *block, value_t *found)
{
    if (gil_table.used != 0 && has_main_gil() && take_large(block, found))
        return 1;
    return take_raw(block, found);
}

INLINE void raw_got(void *block, size_t size, int owns, account_ref heir)
{
    int from_above = thread.outer != 0;
    size = from_above ? thread.outer : asked(size);
    thread.outer = 0;
    thread.bytes += size;
    thread.allocations++;
    account_ref owner = thread.owner != 0 ? thread.owner : heir != 0 ? heir : thread.inherited;
    if (owns && owner != 0 && !thread.forking && own_raw(block, size, owner, from_above) && owner == thread.owner)
        thread.owned += size;
}

INLINE void *raw_malloc(const allocator_t *below, void *ctx, size_t size, int owns)
{
    thread.raw_calls++;
    void *block = below->malloc(ctx, size);
    if (block != NULL)
        raw_got(block, size, owns, 0);
    return block;
}

INLINE void *raw_calloc(const allocator_t *below, void *ctx, size_t count, size_t size, int owns)
{
    thread.raw_calls++;
    void *block = below->calloc(ctx, count, size);
    if (block != NULL)
        raw_got(block, count * size, owns, 0);
    return block;
}

INLINE void *raw_realloc(const allocator_t *below, void *ctx, void *block, size_t size, int owns)
{
    /* The entry goes first: the address may be another thread's as soon as the block has moved. */
    value_t old = {0, 0};
    int had_owner = owns && block != NULL && !thread.forking && disown_raw(block, &old);
    thread.raw_calls++;
    void *moved = below->realloc(ctx, block, size);
    if (moved != NULL)
        raw_got(moved, size, owns, old.owner);
    else if (had_owner)
        keep_raw(block, old.size, old.owner);
    return moved;
}

INLINE void raw_free(const allocator_t *below, void *ctx, void *block)
{
    value_t old;
    if (block != NULL && !thread.forking)
        disown_raw(block, &old);
    below->free(ctx, block);
}

/* ---- the sets: a function knows what it wraps, as it has no ctx of its own ---- */

#define GIL_HOOKS(layer, domain, name) \
    static void *name##_counts_malloc_##layer(void *ctx, size_t size) \
    { \
        return counting_malloc(&wrapped[layer][domain], ctx, size, domain); \
    } \
    static void *name##_counts_calloc_##layer(void *ctx, size_t count, size_t size) \
    { \
        return counting_calloc(&wrapped[layer][domain], ctx, count, size, domain); \
    } \
    static void *name##_counts_realloc_##layer(void *ctx, void *block, size_t size) \
    { \
        return any_realloc(&wrapped[layer][domain], ctx, block, size, domain, 0); \
    } \
    static void *name##_owns_malloc_##layer(void *ctx, size_t size) \
    { \
        return owning_malloc(&wrapped[layer][domain], ctx, size, domain); \
    } \
    static void *name##_owns_calloc_##layer(void *ctx, size_t count, size_t size) \
    { \
        return owning_calloc(&wrapped[layer][domain], ctx, count, size, domain); \
    } \
    static void *name##_owns_realloc_##layer(void *ctx, void *block, size_t size) \
    { \
        return any_realloc(&wrapped[layer][domain], ctx, block, size, domain, 1); \
    } \
    static void name##_owns_free_##layer(void *ctx, void *block) \
    { \
        owning_free(&wrapped[layer][domain], ctx, block); \
    }
#define RAW_HOOKS(layer, word, owns) \
    static void *raw_##word##_malloc_##layer(void *ctx, size_t size) \
    { \
        return raw_malloc(&wrapped[layer][DOMAIN_RAW], ctx, size, owns); \
    } \
    static void *raw_##word##_calloc_##layer(void *ctx, size_t count, size_t size) \
    { \
        return raw_calloc(&wrapped[layer][DOMAIN_RAW], ctx, count, size, owns); \
    } \
    static void *raw_##word##_realloc_##layer(void *ctx, void *block, size_t size) \
    { \
        return raw_realloc(&wrapped[layer][DOMAIN_RAW], ctx, block, size, owns); \
    }
#define HOOKS(layer) \
    GIL_HOOKS(layer, DOMAIN_MEM, mem) \
    GIL_HOOKS(layer, DOMAIN_OBJ, obj) \
    RAW_HOOKS(layer, counts, 0) \
    RAW_HOOKS(layer, owns, 1) \
    static void raw_owns_free_##layer(void *ctx, void *block) \
    { \
        raw_free(&wrapped[layer][DOMAIN_RAW], ctx, block); \
    }
HOOKS(0)
HOOKS(1)
HOOKS(2)
HOOKS(3)
HOOKS(4)
HOOKS(5)

/* free is NULL where it is the wrapped one's; ctx always is. */
#define ENTRIES(name, layer) \
    { \
        {NULL, name##_counts_malloc_##layer, name##_counts_calloc_##layer, name##_counts_realloc_##layer, NULL}, \
        { \
            NULL, name##_owns_malloc_##layer, name##_owns_calloc_##layer, name##_owns_realloc_##layer, \
                name##_owns_free_##layer \
        } \
    }
#define LAYER(layer) {ENTRIES(raw, layer), ENTRIES(mem, layer), ENTRIES(obj, layer)}
static const allocator_t hooks[LAYERS][DOMAINS][SETS] = {LAYER(0), LAYER(1), LAYER(2), LAYER(3), LAYER(4), LAYER(5)};
