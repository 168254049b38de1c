/* ---- accounts come and go, under the GIL ---- */

static struct {
    unsigned int fresh;                 /* the first that was never used */
    unsigned int free_first, free_last; /* reused in the order in which they were given back */
    unsigned int waiting_first, waiting_last, waiting;
    unsigned long long refused; /* requests that got none */
} slab = {1, 0, 0, 0, 0, 0, 0};

static void append_account(unsigned int *first, unsigned int *last, unsigned int index)
{
    accounts[index].next = 0;
    if (*first == 0)
        *first = index;
    else
        accounts[*last].next = (unsigned short)index;
    *last = index;
}

/* No raw hook can be in the middle of an account that was waiting once every shard's lock has been
 * ours. */
static void end_quarantine(void)
{
    if (slab.waiting == 0)
        return;
    pass_every_shard();
    if (slab.free_first == 0)
        slab.free_first = slab.waiting_first;
    else
        accounts[slab.free_last].next = (unsigned short)slab.waiting_first;
    slab.free_last = slab.waiting_last;
    slab.waiting_first = slab.waiting_last = slab.waiting = 0;
}

/* 0 where there is none left. */
static account_ref open_account(account_ref parent)
{
    unsigned int index;
    if (slab.free_first == 0 && slab.fresh == MAX_ACCOUNTS)
        end_quarantine();
    if (slab.fresh < MAX_ACCOUNTS) /* first, so that it is long before one is used again */
        index = slab.fresh++;
    else if (slab.free_first != 0) {
        index = slab.free_first;
        slab.free_first = accounts[index].next;
    } else {
        slab.refused++;
        return 0;
    }
    account_t *account = &accounts[index];
    if ((unsigned char)(account->generation - account->checked) >= most_generations()) {
        forget_dead_words();
        for (unsigned int i = 0; i < slab.fresh; i++)
            accounts[i].checked = (unsigned char)accounts[i].generation;
    }
    unsigned int generation = account->generation;
    unsigned char checked = account->checked;
    memset(account, 0, sizeof(*account));
    account->generation = generation ? generation : 1;
    account->checked = checked;
    account->parent = parent;
    account_ref ref = (account_ref)account->generation << 32 | index;
    account->word = word_for(ref, 0);
    return ref;
}

/* Its request is gone. Its blocks are the parent's while that lives, so it waits. */
static void drop_account(account_ref ref)
{
    account_t *account = account_of(ref), *parent = account == NULL ? NULL : parent_of(account);
    if (account == NULL)
        return;
    unsigned int todo = (unsigned int)ref;
    if (parent != NULL) {
        account->next = parent->orphans;
        parent->orphans = (unsigned short)todo;
        return;
    }
    account->next = 0;
    while (todo != 0) {
        account_t *dead = &accounts[todo];
        unsigned int index = todo, last = dead->orphans;
        todo = dead->next;
        if (last != 0) {
            unsigned int rest = todo;
            todo = last;
            while (accounts[last].next != 0)
                last = accounts[last].next;
            accounts[last].next = (unsigned short)rest;
        }
        unsigned int after = dead->generation + 1;
        __atomic_store_n(&dead->generation, after ? after : 1, __ATOMIC_SEQ_CST);
        dead->word = 0;
        append_account(&slab.waiting_first, &slab.waiting_last, index);
        slab.waiting++;
    }
    if (slab.waiting >= QUARANTINE)
        end_quarantine();
}
