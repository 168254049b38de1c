/* ---- accounts: what the blocks of one request hold (see blocks.h for whose a block is) ----
 *
 * An account is known by a reference that holds its generation. When its request is gone the
 * generation moves on, and whatever still bears the old reference refers to nobody: nothing ever
 * points into a request's object. The gil_* numbers are written only by whoever holds the main
 * interpreter's GIL, the raw_* ones by any thread.
 */
#define MAX_ACCOUNTS 65536
#define QUARANTINE \
    256 /* accounts of dead requests that wait for one round over the shards' locks */

typedef unsigned long long account_ref; /* generation << 32 | index; 0: nobody */

/* One cache line. */
typedef struct {
    unsigned int generation;
    unsigned int word; /* word_for() it, with no size: see small.h; 0 when its request is gone */
    unsigned short next,
        orphans;           /* next: in the list it is in; orphans: accounts of dead children */
    unsigned char checked; /* its generation when words of dead accounts were last forgotten */
    unsigned short marked; /* while memory_py_blocks() looks for its blocks: whose they are */
    account_ref parent;
    long long gil_held, gil_blocks, gil_peak, raw,
        raw_peak; /* raw: held and blocks in one word, see BLOCK_BITS */
} account_t;
_Static_assert(sizeof(account_t) == 64 && MAX_ACCOUNTS - 1 <= USHRT_MAX,
               "an account fits its cache line");

#define BLOCK_BITS 22 /* more blocks than the tables of blocks.h hold; up to 2 TB */

static inline long long held_in(long long raw)
{
    return raw >> BLOCK_BITS;
}

static inline long long blocks_in(long long raw)
{
    return raw & ((1LL << BLOCK_BITS) - 1);
}

static inline long long one_block(long long size)
{
    return size << BLOCK_BITS | 1;
}

/* [0] is nobody's. Pages of it are taken as they are used. */
static account_t accounts[MAX_ACCOUNTS] __attribute__((aligned(64)));
static inline account_t *account_at(account_ref ref)
{
    return &accounts[(unsigned int)ref & (MAX_ACCOUNTS - 1)];
}

static inline account_t *account_of(account_ref ref)
{
    account_t *account = account_at(ref);
    unsigned int generation = __atomic_load_n(&account->generation, __ATOMIC_RELAXED);
    return generation == (unsigned int)(ref >> 32) ? account : NULL;
}

static inline account_t *parent_of(const account_t *account)
{
    return __builtin_expect(account->parent == 0, 1) ? NULL : account_of(account->parent);
}

static inline void gil_hold(account_t *account, long long size)
{
    for (; account != NULL; account = parent_of(account)) {
        long long held = account->gil_held + size;
        __atomic_store_n(&account->gil_held, held, __ATOMIC_RELAXED);
        account->gil_blocks++;
        held += held_in(__atomic_load_n(&account->raw, __ATOMIC_RELAXED));
        if (__builtin_expect(held > account->gil_peak, 0))
            account->gil_peak = held;
    }
}

/* NULL is nobody. */
static inline void gil_release(account_t *account, long long size)
{
    for (; account != NULL; account = parent_of(account)) {
        __atomic_store_n(&account->gil_held, account->gil_held - size, __ATOMIC_RELAXED);
        account->gil_blocks--;
    }
}

/* The two of the raw side are called under a shard's lock, so that no account is reused in the
 * middle of them. */
static void raw_hold(account_ref ref, long long size)
{
    for (account_t *a = account_of(ref); a != NULL; a = parent_of(a)) {
        long long held = held_in(__atomic_add_fetch(&a->raw, one_block(size), __ATOMIC_RELAXED));
        held += __atomic_load_n(&a->gil_held, __ATOMIC_RELAXED);
        long long peak = __atomic_load_n(&a->raw_peak, __ATOMIC_RELAXED);
        while (held > peak && !__atomic_compare_exchange_n(&a->raw_peak, &peak, held, 1,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            ;
    }
}

static void raw_release(account_ref ref, long long size)
{
    for (account_t *a = account_of(ref); a != NULL; a = parent_of(a))
        __atomic_sub_fetch(&a->raw, one_block(size), __ATOMIC_RELAXED);
}
