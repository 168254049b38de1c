/* ---- the hooks in Python's allocator ----
 *
 * Invariants.
 * - A hook in the place of a wrapped allocator keeps its ctx, and hands out its pointers unchanged.
 * PyMem_SetAllocator writes five words while other threads read them; any mix of old and new ones
 * is therefore an allocator that works.
 * - What a set of hooks wraps is written before the set is first installed, and never changed: a
 * thread may be inside it. No hook has a fence: whoever writes it has every CPU pass one
 * (pass_every_cpu) before the set is installed.
 * - A hook touches no Python object, takes no GIL, and calls nothing that allocates through Python.
 * Requested bytes are a running total of the thread; request.h takes differences at the boundaries
 * of steps and jobs. realloc() counts as a request for its new size, zero bytes as one, as in
 * CPython's raw allocator and in valgrind.
 */
enum {
    DOMAIN_RAW = PYMEM_DOMAIN_RAW,
    DOMAIN_MEM = PYMEM_DOMAIN_MEM,
    DOMAIN_OBJ = PYMEM_DOMAIN_OBJ,
    DOMAINS = 3
};
enum { SET_COUNTS = 0, SET_OWNS = 1, SETS = 2 };
#define LAYERS \
    6 /* allocators that we can lie over in the life of a process; the same one again counts once \
       */

typedef PyMemAllocatorEx allocator_t;

/* Whether a domain above has passed a call on, and the raw hook has seen and counted it. */
enum { NOT_INSIDE = 0, NOT_SEEN_YET = 1, SEEN = 2 };

typedef struct {
    unsigned long long
        unowned; /* running totals of bytes: of blocks that did not become the request's own */
    account_ref
        owner; /* of what is allocated now; apart, or the compiler adds both totals as one vector */
    unsigned long long owned; /* of those that did */
    unsigned long long allocations;
    size_t outer; /* size that the caller asked of a domain above, for the raw hook */
    account_ref
        inherited;   /* owner of the block that realloc() replaces, while nobody's step runs */
    char owns_small; /* small blocks get that owner as well */
    char inside;     /* where a domain above has passed a call on */
    char passed;     /* the last of them came to the raw domain */
    char forking;    /* every shard's lock is held */
    PyObject *request;
    unsigned long long unowned_before, owned_before, allocations_before; /* at the last boundary */
} thread_t;

#if defined(__GLIBC__) && defined(__x86_64__) /* else it may have no room when loaded: glibc's \
                                                 static block on aarch64 is aligned to 16 */
static __thread thread_t thread __attribute__((tls_model("initial-exec"), aligned(64)));
#else
static __thread thread_t thread;
#endif

static allocator_t wrapped[LAYERS][DOMAINS];
#define BELOW(part) __atomic_load_n(&below->part, __ATOMIC_RELAXED)
static struct {
    size_t
        small_limit; /* requests up to it are never passed on to the raw domain by what we wrap */
    size_t own_from[DOMAINS]; /* blocks of this size and more get their owner in this domain's own
                                 hook */
    int passes_large_on;      /* what we wrap asks the raw domain for large blocks */
} __attribute__((aligned(64))) calibrated;

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))

INLINE size_t asked(size_t size)
{
    return size + !size;
}

/* ---- domains under the GIL: PyMem_* and PyObject_* ---- */

INLINE void count(size_t size, int owned)
{
    if (owned)
        thread.owned += size;
    else
        thread.unowned += size;
    thread.allocations++;
}

INLINE unsigned long long asked_for(void)
{
    return thread.unowned + thread.owned;
}

INLINE int own_large(void *block, size_t size, account_ref owner)
{
    account_t *account = account_of(owner);
    return account != NULL && keep_large(block, size, owner, account);
}

/* 0 where the block got no owner. */
NOINLINE int own(void *block, size_t size, account_ref owner)
{
    return size <= MOST_SMALL ? keep_small(block, size, owner)
                              : under_main_gil() && own_large(block, size, owner);
}

/* What was passed on to the raw domain that one's hook takes. */
static int take(void *block, value_t *found)
{
    return take_small(block, found) || (!calibrated.passes_large_on && take_large(block, found));
}

/* Between the two the raw domain may be called: its hook takes the first such call for this one and
 * counts no other. */
INLINE void enter(size_t size)
{
    thread.outer = asked(size);
    thread.inside = NOT_SEEN_YET;
}

INLINE void leave(void *block, size_t size, int domain, account_ref owner)
{
    int seen = thread.inside == SEEN;
    thread.inside = NOT_INSIDE;
    thread.passed = seen;
    if (seen || block == NULL)
        return;
    size = asked(size);
    count(size, owner != 0 && size >= calibrated.own_from[domain] && own(block, size, owner) &&
                    owner == thread.owner);
}

NOINLINE void *entered_malloc(const allocator_t *below, void *ctx, size_t size, int domain)
{
    enter(size);
    void *block = BELOW(malloc)(ctx, size);
    leave(block, size, domain, thread.owner);
    return block;
}

NOINLINE void *entered_calloc(const allocator_t *below, void *ctx, size_t number, size_t size,
                              int domain)
{
    enter(number * size);
    void *block = BELOW(calloc)(ctx, number, size);
    leave(block, number * size, domain, thread.owner);
    return block;
}

NOINLINE void *counted_realloc(const allocator_t *below, void *ctx, void *block, size_t size,
                               int domain)
{
    enter(size);
    void *moved = BELOW(realloc)(ctx, block, size);
    leave(moved, size, domain, thread.owner);
    return moved;
}

NOINLINE void *owned_realloc(const allocator_t *below, void *ctx, void *block, size_t size,
                             int domain)
{
    value_t old = {0, 0};
    if (block != NULL && take(block, &old))
        thread.inherited = old.owner;
    enter(size);
    void *moved = BELOW(realloc)(ctx, block, size);
    thread.inherited = 0;
    leave(moved, size, domain, thread.owner != 0 ? thread.owner : old.owner);
    if (moved == NULL && old.owner != 0)
        own(block, old.size, old.owner);
    return moved;
}

INLINE int is_small(size_t size)
{
    return __builtin_expect(size - 1 < calibrated.small_limit,
                            1); /* zero bytes are not: they go to the raw domain */
}

INLINE void *counting_malloc(const allocator_t *below, void *ctx, size_t size, int domain)
{
    if (!is_small(size))
        return entered_malloc(below, ctx, size, domain);
    count(size, 0);
    return BELOW(malloc)(ctx, size);
}

INLINE void *counting_calloc(const allocator_t *below, void *ctx, size_t number, size_t size,
                             int domain)
{
    if (!is_small(number * size))
        return entered_calloc(below, ctx, number, size, domain);
    count(number * size, 0);
    return BELOW(calloc)(ctx, number, size);
}

INLINE void *counting_realloc(const allocator_t *below, void *ctx, void *block, size_t size,
                              int domain)
{
    if (!is_small(size) || block != NULL) /* a small block may replace a large one */
        return counted_realloc(below, ctx, block, size, domain);
    count(size, 0);
    return BELOW(realloc)(ctx, block, size);
}

/* A block that CPython's small allocator keeps to itself. */
INLINE void *own_small(void *block, size_t size)
{
    if (block != NULL)
        count(size, keep_small(block, size, thread.owner));
    return block;
}

INLINE void *owning_malloc(const allocator_t *below, void *ctx, size_t size, int domain)
{
    if (!is_small(size) || !thread.owns_small)
        return counting_malloc(below, ctx, size, domain);
    return own_small(BELOW(malloc)(ctx, size), size);
}

INLINE void *owning_calloc(const allocator_t *below, void *ctx, size_t number, size_t size,
                           int domain)
{
    if (!is_small(number * size) || !thread.owns_small)
        return counting_calloc(below, ctx, number, size, domain);
    return own_small(BELOW(calloc)(ctx, number, size), number * size);
}

INLINE void *owning_realloc(const allocator_t *below, void *ctx, void *block, size_t size,
                            int domain)
{
    if (block != NULL)
        return owned_realloc(below, ctx, block, size, domain);
    if (!is_small(size) || !thread.owns_small)
        return counting_realloc(below, ctx, NULL, size, domain);
    return own_small(BELOW(realloc)(ctx, NULL, size), size);
}

INLINE void owning_free(const allocator_t *below, void *ctx, void *block)
{
    value_t old;
    unsigned int *word = word_of(block);
    if (word != NULL && *word != 0 && has_word(block))
        drop_word(word);
    else if (!calibrated.passes_large_on)
        take_large(block, &old);
    BELOW(free)(ctx, block);
}

/* ---- the raw domain: with or without the GIL ---- */

NOINLINE int own_raw(void *block, size_t size, account_ref owner)
{
    return !thread.forking && keep_raw(block, size, owner);
}

NOINLINE int disown_raw(void *block, value_t *found)
{
    return !thread.forking && take_raw(block, found);
}

NOINLINE void raw_got(void *block, size_t size, int owns, account_ref heir)
{
    int from_above = thread.inside == NOT_SEEN_YET, owned = 0;
    size = from_above ? thread.outer : asked(size);
    account_ref owner = thread.owner != 0 ? thread.owner : heir != 0 ? heir : thread.inherited;
    if (owns && owner != 0) /* what a domain above asked for will be freed under the GIL as well */
        owned = (from_above && under_main_gil() ? own_large(block, size, owner)
                                                : own_raw(block, size, owner)) &&
                owner == thread.owner;
    if (thread.inside != SEEN)
        count(size, owned);
    if (from_above)
        thread.inside = SEEN;
}

INLINE void *raw_malloc(const allocator_t *below, void *ctx, size_t size, int owns)
{
    void *block = BELOW(malloc)(ctx, size);
    if (block != NULL)
        raw_got(block, size, owns, 0);
    return block;
}

INLINE void *raw_calloc(const allocator_t *below, void *ctx, size_t count, size_t size, int owns)
{
    void *block = BELOW(calloc)(ctx, count, size);
    if (block != NULL)
        raw_got(block, count * size, owns, 0);
    return block;
}

INLINE void *raw_realloc(const allocator_t *below, void *ctx, void *block, size_t size, int owns)
{
    /* The entry goes first: the address may be another thread's as soon as the block has moved. */
    value_t old = {0, 0};
    int had_owner = owns && block != NULL && (take_large(block, &old) || disown_raw(block, &old));
    void *moved = BELOW(realloc)(ctx, block, size);
    if (moved != NULL)
        raw_got(moved, size, owns, old.owner);
    else if (had_owner)
        own_raw(block, old.size, old.owner);
    return moved;
}

INLINE void raw_free(const allocator_t *below, void *ctx, void *block)
{
    value_t old;
    if (block != NULL && !take_large(block, &old))
        disown_raw(block, &old);
    BELOW(free)(ctx, block);
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
        return counting_realloc(&wrapped[layer][domain], ctx, block, size, domain); \
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
        return owning_realloc(&wrapped[layer][domain], ctx, block, size, domain); \
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
        {NULL, name##_counts_malloc_##layer, name##_counts_calloc_##layer, \
         name##_counts_realloc_##layer, NULL}, \
        { \
            NULL, name##_owns_malloc_##layer, name##_owns_calloc_##layer, \
                name##_owns_realloc_##layer, name##_owns_free_##layer \
        } \
    }
#define LAYER(layer) {ENTRIES(raw, layer), ENTRIES(mem, layer), ENTRIES(obj, layer)}
static const allocator_t hooks[LAYERS][DOMAINS][SETS] = {LAYER(0), LAYER(1), LAYER(2),
                                                         LAYER(3), LAYER(4), LAYER(5)};
