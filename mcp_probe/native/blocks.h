/* ---- blocks: whose a large block of memory is, and how many bytes of it were asked for (small
 * ones: small.h) ----
 *
 * Hash tables, address -> (account, size). What PyMem_* and PyObject_* hand out comes and goes
 * under the GIL: one table, touched only by whoever holds the main interpreter's. Blocks of
 * PyMem_Raw* may come and go without it: SHARDS tables, each under a lock that is held for one
 * entry. Bounded: what does not fit is counted and has no owner. Entries of dead requests make way
 * as a table fills.
 */
#define SHARDS 64
#define FIRST_SLOTS 128
#define SPARSE_SLOTS 4096 /* 100 KB */
#define MAX_SHARD_SLOTS (1u << 15)
#define MAX_GIL_SLOTS (1u << 21)
#define MAX_BLOCKS \
    (SHARDS * (MAX_SHARD_SLOTS / 4 * 3)) /* of either table: 1.5 million in 50 MB \
                                          */

typedef struct {
    account_ref owner;
    unsigned long long size;
} value_t;

typedef struct {
    unsigned long address; /* 0: free */
    value_t value;
} slot_t;

typedef struct {
    size_t mask;
    slot_t *at;
} slots_t;

typedef struct {
    slots_t *slots;    /* one of sizes, each twice the one before; NULL before the first entry */
    size_t used, room; /* room: as many entries fit before it grows, or is searched for dead ones */
    size_t most, wait; /* most: slots; wait: refusals until it is searched once more */
    size_t
        sparse; /* up to as many slots it is kept so empty that probes find their place at once */
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
    return count_of(table) * sizeof(slot_t);
}

static inline unsigned long address_in(const slot_t *slot)
{
    return __atomic_load_n(&slot->address, __ATOMIC_RELAXED);
}

/* Whoever frees a block of the raw domain asks without the lock whether there is any entry. */
static inline void set_used(table_t *table, size_t used)
{
    __atomic_store_n(&table->used, used, __ATOMIC_RELAXED);
}

static inline void put_into(slot_t *slot, slot_t put)
{
    slot->value = put.value;
    __atomic_store_n(&slot->address, put.address, __ATOMIC_RELAXED);
}

/* Where the address is, or where it would go. Ends, as a table is never full. */
static inline size_t place_of(const slots_t *slots, unsigned long address)
{
    for (size_t at = hash_of(address) & slots->mask;; at = (at + 1) & slots->mask) {
        unsigned long found = address_in(&slots->at[at]);
        if (found == address || found == 0)
            return at;
    }
}

static void __attribute__((noinline)) close_hole(const slots_t *slots, size_t hole)
{
    for (size_t at = (hole + 1) & slots->mask; slots->at[at].address != 0;
         at = (at + 1) & slots->mask) {
        size_t home = hash_of(slots->at[at].address) & slots->mask;
        if (((at - home) & slots->mask) >= ((at - hole) & slots->mask)) {
            put_into(&slots->at[hole], slots->at[at]);
            hole = at;
        }
    }
    __atomic_store_n(&slots->at[hole].address, 0, __ATOMIC_RELAXED);
}

static inline void remove_at(table_t *table, size_t at)
{
    const slots_t *slots = table->slots;
    if (__builtin_expect(slots->at[(at + 1) & slots->mask].address != 0, 0))
        close_hole(slots, at);
    else
        __atomic_store_n(&slots->at[at].address, 0, __ATOMIC_RELAXED);
    set_used(table, table->used - 1);
}

static void remove_dead(table_t *table)
{
    slots_t *slots = table->slots;
    for (size_t at = 0; at <= slots->mask; at++)
        while (slots->at[at].address != 0 && account_of(slots->at[at].value.owner) == NULL)
            remove_at(table, at);
}

static int grow(table_t *table)
{
    slots_t *old = table->slots, *slots = old == NULL ? table->sizes : old + 1;
    size_t before = bytes_of(table), count = old == NULL ? FIRST_SLOTS : 2 * count_of(table);
    void *memory = mmap(NULL, count * sizeof(slot_t), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        table->most = count_of(table);
        table->room = table->most / 4 * 3;
        return -1;
    }
    *slots = (slots_t){count - 1, memory};
    for (size_t at = 0; old != NULL && at <= old->mask; at++)
        if (old->at[at].address != 0)
            slots->at[place_of(slots, old->at[at].address)] = old->at[at];
    table->room = count >= table->most     ? count / 4 * 3
                  : count <= table->sparse ? count / 8
                                           : count / 2;
    __atomic_store_n(&table->slots, slots, __ATOMIC_RELEASE);
    if (old != NULL)
        madvise(old->at, before, MADV_DONTNEED); /* and not unmapped: see take_large() */
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
    if (count < table->most && table->used >= table->room / 2 && grow(table) == 0)
        return 0;
    if (table->used < table->room / 6 * 5)
        return 0;
    table->wait = count / 8; /* a search costs as much as that many entries */
    return -1;
}

/* Room for one more entry: -1 where there is none. */
static inline int room_for_one(table_t *table)
{
    return __builtin_expect(table->used < table->room, 1) ? 0 : search_for_room(table);
}

/* Forget every entry. */
static void empty(table_t *table)
{
    for (size_t at = 0; at < count_of(table); at++)
        put_into(&table->slots->at[at], (slot_t){0});
    set_used(table, 0);
    table->wait = 0;
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
        slot_t *slot = &table->slots->at[place_of(table->slots, address)];
        if (slot->address != 0) /* its end was not seen */
            raw_release(slot->value.owner, slot->value.size);
        else
            set_used(table, table->used + 1);
        *slot = (slot_t){address, {owner, size}};
        raw_hold(owner, size);
        kept = 1;
    }
    unlock_shard(number);
    return kept;
}

/* The block is about to be freed or moved. 1 where it had an owner. */
static int __attribute__((noinline)) take_raw(void *block, value_t *found)
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
        if (table->slots->at[at].address != 0) {
            *found = table->slots->at[at].value;
            remove_at(table, at);
            raw_release(found->owner, found->size);
            taken = 1;
        }
    }
    unlock_shard(number);
    return taken;
}

/* ---- under the main interpreter's GIL ---- */

/* `account` is the owner's. */
static inline int keep_large(void *block, unsigned long long size, account_ref owner,
                             account_t *account)
{
    table_t *table = &gil_table;
    if (room_for_one(table) < 0) {
        table->refused++;
        return 0;
    }
    slot_t *slot = &table->slots->at[place_of(table->slots, (unsigned long)block)];
    if (__builtin_expect(slot->address != 0, 0))
        gil_release(account_of(slot->value.owner), slot->value.size);
    else
        table->used++;
    put_into(slot, (slot_t){(unsigned long)block, {owner, size}});
    gil_hold(account, size);
    return 1;
}

/* The only one here that may be called without the GIL. Only blocks that came from PyMem_* or
 * PyObject_* are found, and whoever frees one of those holds it. Anybody else meets entries on
 * their way from slot to slot, and finds nothing; that is why slots that were outgrown stay mapped.
 */
static inline int take_large(void *block, value_t *found)
{
    slots_t *slots = __atomic_load_n(&gil_table.slots, __ATOMIC_ACQUIRE);
    if (slots == NULL || block == NULL)
        return 0;
    size_t at = place_of(slots, (unsigned long)block);
    if (address_in(&slots->at[at]) != (unsigned long)block)
        return 0;
    account_ref owner = slots->at[at].value.owner;
    unsigned long long size = slots->at[at].value.size;
    remove_at(&gil_table, at);
    gil_release(account_of(owner), size);
    *found = (value_t){owner, size};
    return 1;
}
