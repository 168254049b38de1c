/* ---- small blocks: whose each is, in a word beside every 16 bytes of the heap ----
 *
 * Under the GIL. A chunk of the heap is 4 MB of addresses, its words another 1 MB that are only
 * touched where a block in it has an owner; chunks are found by hash, and never given back. No word
 * is ever out of place, so whoever has another interpreter's GIL may look at the same time.
 */
#define CHUNK_BITS 22
#define CHUNK_WORDS (1u << (CHUNK_BITS - 4))
#define MAX_CHUNKS 256 /* 1 GB of heap, 256 MB of words */
#define CHUNK_SLOTS 1024
#define MOST_SMALL 512 /* bytes; a size must fit into its bits of a word */
#define SIZE_BITS 10
#define INDEX_BITS 16
#define GENERATION_BITS (32 - SIZE_BITS - INDEX_BITS)
#define GENERATIONS (1u << GENERATION_BITS)

static struct {
    unsigned long number; /* 0: free */
    unsigned int *words;
} chunks[CHUNK_SLOTS];
static struct {
    unsigned int chunks;
    unsigned long long refused;
} small;

/* The chunk's place in the hash, or where it would go. */
static inline size_t place_of_chunk(unsigned long number)
{
    size_t at = number & (CHUNK_SLOTS - 1);
    for (;;) {
        unsigned long found = __atomic_load_n(&chunks[at].number, __ATOMIC_ACQUIRE);
        if (found == number || found == 0)
            return at;
        at = (at + 1) & (CHUNK_SLOTS - 1);
    }
}

static unsigned int *__attribute__((noinline)) search_word(unsigned long address)
{
    size_t at = place_of_chunk(address >> CHUNK_BITS);
    return chunks[at].number == 0 ? NULL : &chunks[at].words[(address >> 4) & (CHUNK_WORDS - 1)];
}

/* NULL where no block of that chunk ever had an owner. */
static inline __attribute__((always_inline)) unsigned int *word_of(const void *block)
{
    unsigned long address = (unsigned long)block, number = address >> CHUNK_BITS,
                  at = number & (CHUNK_SLOTS - 1);
    if (__builtin_expect(__atomic_load_n(&chunks[at].number, __ATOMIC_ACQUIRE) == number, 1))
        return &chunks[at].words[(address >> 4) & (CHUNK_WORDS - 1)];
    return search_word(address);
}

/* An allocator may hand out blocks at multiples of eight: two would share a word. */
static inline int has_word(const void *block)
{
    return ((unsigned long)block & 15) == 0;
}

static unsigned int *__attribute__((noinline)) make_word(const void *block)
{
    unsigned long number = (unsigned long)block >> CHUNK_BITS;
    if (small.chunks >= MAX_CHUNKS || number == 0 || !under_main_gil())
        return NULL;
    size_t at = place_of_chunk(number);
    if (chunks[at].number == 0) {
        void *words = mmap(NULL, CHUNK_WORDS * sizeof(int), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (words == MAP_FAILED)
            return NULL;
        chunks[at].words = words;
        __atomic_store_n(&chunks[at].number, number, __ATOMIC_RELEASE);
        small.chunks++;
    }
    return word_of(block);
}

static unsigned int most_generations(void)
{
    return GENERATIONS - 1;
}

static inline unsigned int word_for(account_ref owner, size_t size)
{
    return (unsigned int)owner << SIZE_BITS |
           (unsigned int)(owner >> 32) << (SIZE_BITS + INDEX_BITS) | (unsigned int)size;
}

/* NULL where the owner is gone: only so many generations fit (see forget_dead_words). */
static inline account_t *owner_in(unsigned int word)
{
    account_t *account = &accounts[word >> SIZE_BITS & (MAX_ACCOUNTS - 1)];
    return word - account->word < 1u << SIZE_BITS ? account : NULL;
}

static inline size_t size_in(unsigned int word)
{
    return word & ((1u << SIZE_BITS) - 1);
}

static inline __attribute__((always_inline)) void drop_word(unsigned int *word)
{
    unsigned int dropped = *word;
    *word = 0;
    gil_release(owner_in(dropped), (long long)size_in(dropped));
}

/* 0 where the owner is gone, or there is no room for the words. */
static int __attribute__((noinline)) keep_small(const void *block, size_t size, account_ref owner)
{
    account_t *account = account_of(owner);
    if (account == NULL)
        return 0;
    unsigned int *word = word_of(block);
    if (!has_word(block) || (word == NULL && (word = make_word(block)) == NULL)) {
        small.refused++;
        return 0;
    }
    if (*word != 0)
        drop_word(word); /* its end was not seen */
    *word = word_for(owner, size);
    gil_hold(account, (long long)size);
    return 1;
}

static inline int take_small(const void *block, value_t *found)
{
    unsigned int *word = word_of(block);
    account_t *account = word == NULL || *word == 0 || !has_word(block) ? NULL : owner_in(*word);
    if (account == NULL)
        return 0;
    *found = (value_t){(account_ref)account->generation << 32 | (account_ref)(account - accounts),
                       size_in(*word)};
    drop_word(word);
    return 1;
}

/* Before an account is in use for so many generations that an old word could be taken for one of
 * its own. */
static void forget_dead_words(void)
{
    for (size_t at = 0; at < CHUNK_SLOTS; at++)
        for (size_t i = 0; chunks[at].number != 0 && i < CHUNK_WORDS; i++)
            if (chunks[at].words[i] != 0 && owner_in(chunks[at].words[i]) == NULL)
                chunks[at].words[i] = 0;
}

static void forget_every_word(void)
{
    for (size_t at = 0; at < CHUNK_SLOTS; at++)
        if (chunks[at].number != 0)
            madvise(chunks[at].words, CHUNK_WORDS * sizeof(int), MADV_DONTNEED);
    small.refused = 0;
}
