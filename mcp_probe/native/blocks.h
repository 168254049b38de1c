/* ---- blocks: whose a large block of memory is, and how many bytes of it were asked for (small ones: small.h) ----
 *
 * Hash tables, address -> (account, size). What PyMem_* and PyObject_* hand out comes and goes under the GIL: one table,
 * touched only by whoever holds the main interpreter's. Blocks of PyMem_Raw* may come and go without it: SHARDS tables,
 * each under a lock that is held for one entry.
 * Bounded: what does not fit is counted and has no owner. Entries of dead requests make way as a table fills.
 */
#define SHARDS 64
#define FIRST_SLOTS 128
#define MAX_SHARD_SLOTS (1u << 15)
#define MAX_GIL_SLOTS (1u << 21)
#define MAX_BLOCKS (SHARDS * (MAX_SHARD_SLOTS / 4 * 3)) /* of either table: 1.5 million in 50 MB */

typedef struct {
    account_ref owner;
    unsigned long long size;
} value_t;

typedef struct {
    size_t mask;
    unsigned long *addresses; /* 0: free */
    value_t *values;
} slots_t;

typedef struct {
    slots_t *slots; /* one of sizes, each twice the one before; NULL before the first entry */
    size_t used, most, wait; /* wait: refusals until it is searched for dead entries once more */
    unsigned long long refused;
    slots_t sizes[16];
} table_t;

static struct {
    char lock;
    table_t table;
} __attribute__((aligned(64))) shards[SHARDS];
static table_t gil_table;

static inline size_t hash_of(unsigned long address)
{
    return (size_t)((address >> 4) * 0x9E3779B97F4A7C15UL >> 20);
}

static size_t count_of(const table_t *table)
{
    return table->slots == NULL ? 0 : table->slots->mask + 1;
}

static size_t bytes_of(const table_t *table)
{
    return count_of(table) * (sizeof(unsigned long) + sizeof(value_t));
}

/* Where the address is, or where it would go. Ends, as a table is never full. */
static inline size_t place_of(const slots_t *slots, unsigned long address)
{
    size_t at = hash_of(address) & slots->mask;
    for (;;) {
        unsigned long found = slots->addresses[at];
        if (found == 0 || found == address)
            return at;
        at = (at + 1) & slots->mask;
    }
}

static void remove_at(table_t *table, size_t hole)
{
    slots_t *slots = table->slots;
    for (size_t at = (hole + 1) & slots->mask; slots->addresses[at] != 0; at = (at + 1) & slots->mask) {
        size_t home = hash_of(slots->addresses[at]) & slots->mask;
        if (((at - home) & slots->mask) >= ((at - hole) & slots->mask)) {
            slots->values[hole] = slots->values[at];
            slots->addresses[hole] = slots->addresses[at];
            hole = at;
        }
    }
    slots->addresses[hole] = 0;
    table->used--;
}

static void remove_dead(table_t *table)
{
    slots_t *slots = table->slots;
    for (size_t at = 0; at <= slots->mask; at++)
        while (slots->addresses[at] != 0 && account_of(slots->values[at].owner) == NULL)
            remove_at(table, at);
}

static int grow(table_t *table)
{
    slots_t *old = table->slots, *slots = old == NULL ? table->sizes : old + 1;
    size_t before = bytes_of(table), count = old == NULL ? FIRST_SLOTS : 2 * count_of(table);
    void *memory = mmap(NULL, count * (sizeof(unsigned long) + sizeof(value_t)), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        table->most = count_of(table);
        return -1;
    }
    *slots = (slots_t){count - 1, memory, (value_t *)((unsigned long *)memory + count)};
    for (size_t at = 0; old != NULL && at <= old->mask; at++)
        if (old->addresses[at] != 0) {
            size_t to = place_of(slots, old->addresses[at]);
            slots->addresses[to] = old->addresses[at];
            slots->values[to] = old->values[at];
        }
    table->slots = slots;
    if (old != NULL)
        munmap(old->addresses, before);
    return 0;
}

static int __attribute__((noinline)) search_for_room(table_t *table)
{
    if (table->wait > 0) {
        table->wait--;
        return -1;
    }
    size_t count = count_of(table);
    if (count != 0)
        remove_dead(table);
    if (count < table->most && table->used >= count / 4 && grow(table) == 0)
        return 0;
    if (table->used < count / 8 * 5)
        return 0;
    table->wait = count / 8; /* a search costs as much as that many entries */
    return -1;
}

/* Room for one more entry: -1 where there is none. */
static inline int room_for_one(table_t *table)
{
    size_t count = count_of(table);
    if (__builtin_expect(table->used < (count < table->most ? count / 2 : count / 4 * 3), 1))
        return 0;
    return search_for_room(table);
}

/* Forget every entry. */
static void empty(table_t *table)
{
    if (table->slots != NULL)
        memset(table->slots->addresses, 0, (table->slots->mask + 1) * sizeof(unsigned long));
    table->used = table->wait = 0;
    table->refused = 0;
}

/* ---- without the GIL ---- */

static void lock_shard(size_t number)
{
    while (__atomic_exchange_n(&shards[number].lock, 1, __ATOMIC_ACQUIRE))
        sched_yield(); /* held for one entry, or while a table grows */
}

static void unlock_shard(size_t number)
{
    __atomic_store_n(&shards[number].lock, 0, __ATOMIC_RELEASE);
}

static void pass_every_shard(void)
{
    for (size_t i = 0; i < SHARDS; i++) {
        lock_shard(i);
        unlock_shard(i);
    }
}

static inline size_t shard_of(unsigned long address)
{
    return (address >> 4) * 0x9E3779B97F4A7C15UL >> 58;
}

/* The block's owner is `owner`. 0 where the table is full. */
static int keep_raw(void *block, unsigned long long size, account_ref owner)
{
    unsigned long address = (unsigned long)block;
    size_t number = shard_of(address);
    table_t *table = &shards[number].table;
    int kept = 0;
    lock_shard(number);
    if (room_for_one(table) < 0)
        table->refused++;
    else {
        size_t at = place_of(table->slots, address);
        if (table->slots->addresses[at] != 0) /* its end was not seen */
            raw_release(table->slots->values[at].owner, table->slots->values[at].size);
        else {
            table->slots->addresses[at] = address;
            table->used++;
        }
        table->slots->values[at] = (value_t){owner, size};
        raw_hold(owner, size);
        kept = 1;
    }
    unlock_shard(number);
    return kept;
}

/* The block is about to be freed or moved. 1 where it had an owner. */
static int take_raw(void *block, value_t *found)
{
    unsigned long address = (unsigned long)block;
    size_t number = shard_of(address);
    table_t *table = &shards[number].table;
    int taken = 0;
    if (__atomic_load_n(&table->used, __ATOMIC_RELAXED) == 0)
        return 0; /* whoever gave us this block has seen its entry made */
    lock_shard(number);
    if (table->slots != NULL) {
        size_t at = place_of(table->slots, address);
        if (table->slots->addresses[at] != 0) {
            *found = table->slots->values[at];
            remove_at(table, at);
            raw_release(found->owner, found->size);
            taken = 1;
        }
    }
    unlock_shard(number);
    return taken;
}

/* ---- under the main interpreter's GIL ---- */

static int keep_large(void *block, unsigned long long size, account_ref owner)
{
    unsigned long address = (unsigned long)block;
    table_t *table = &gil_table;
    if (room_for_one(table) < 0) {
        table->refused++;
        return 0;
    }
    slots_t *slots = table->slots;
    size_t at = place_of(slots, address);
    if (slots->addresses[at] != 0)
        gil_release(account_of(slots->values[at].owner), slots->values[at].size);
    else {
        slots->addresses[at] = address;
        table->used++;
    }
    slots->values[at] = (value_t){owner, size};
    gil_hold(account_of(owner), size);
    return 1;
}

static int __attribute__((noinline)) take_large(void *block, value_t *found)
{
    slots_t *slots = gil_table.slots;
    if (slots == NULL || block == NULL)
        return 0;
    size_t at = place_of(slots, (unsigned long)block);
    if (slots->addresses[at] == 0)
        return 0;
    *found = slots->values[at];
    remove_at(&gil_table, at);
    gil_release(account_of(found->owner), found->size);
    return 1;
}
