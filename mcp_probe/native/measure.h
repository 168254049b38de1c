/* ---- memory: installing the hooks, and what they have counted for each request ---- */

enum { MODE_OFF = 0, MODE_GROSS = 1, MODE_HYBRID = 2, MODE_SHADOW = 3 };
static const char *const mode_names[] = {"off", "gross", "hybrid", "shadow"};
#define LARGE 513 /* pymalloc passes on what is larger than 512 bytes */
#define PROBE_BYTES 4099

/* Where CPython keeps its interpreters; private. */
extern const char _PyRuntime[] __attribute__((weak));

static unsigned int memory_epoch; /* of the hooks that are installed; 0: none are */

static struct {
    int mode, lost, layers, prepared;
    int buried;            /* by the last probe: somebody's hooks lie over ours */
    int exact;             /* by the last probe: what was asked is what was counted, to the byte */
    long long owned_above; /* blocks larger than this get an owner; -1: all do */
    allocator_t installed[DOMAINS];
} memory;

/* ---- requests: differences of the thread's running totals ---- */

static void begin_count(void)
{
    thread.unowned_before = thread.unowned;
    thread.owned_before = thread.owned;
    thread.allocations_before = thread.allocations;
}

static void memory_settle(void)
{
    unsigned long long owned = thread.owned - thread.owned_before,
                       bytes = thread.unowned - thread.unowned_before + owned,
                       allocations = thread.allocations - thread.allocations_before;
    for (Request *r = (Request *)thread.request; r != NULL; r = as_request(r->parent))
        if (!r->ended && r->memory.epoch == memory_epoch) {
            r->memory.requested += bytes;
            r->memory.allocations += allocations;
            r->memory.owned += owned;
        }
    begin_count();
}

/* The account of a request that is measured; 0 where blocks get no owners, or none is left. */
static account_ref account_for(Request *request)
{
    if (request->memory.account == 0 && memory.mode >= MODE_HYBRID &&
        request->memory.epoch == memory_epoch) {
        Request *parent = as_request(request->parent);
        request->memory.account = open_account(parent == NULL ? 0 : account_for(parent));
    }
    return request->memory.account;
}

static inline void give_to(account_ref owner)
{
    thread.owner = owner;
    thread.owns_small = owner != 0 && memory.mode == MODE_SHADOW;
}

/* From now on what this thread allocates is of `next`, or of nobody. A request that was there
 * before the hooks were is not measured: it would be a part of it. */
static void memory_switch(Request *next)
{
    Request *before = (Request *)thread.request;
    if (before != NULL)
        memory_settle();
    while (next != NULL &&
           (next->ended || next->memory.epoch != memory_epoch || memory.mode == MODE_OFF))
        next = as_request(next->parent);
    thread.request = Py_XNewRef((PyObject *)next);
    give_to(next == NULL ? 0 : account_for(next));
    begin_count();
    if (next != NULL)
        next->memory.charged = 1;
    Py_XDECREF((PyObject *)before); /* last: whatever it frees may come here again */
}

static void memory_begin(Request *request)
{
    if (memory.mode != MODE_OFF || thread.request != NULL)
        memory_switch(request);
}

static void memory_close(void)
{
    if (thread.request != NULL)
        memory_switch(NULL);
}

/* Told just before `ended` is set: what is allocated afterwards is not the request's own. */
static void memory_end(Request *request)
{
    request->memory.sealed = request->memory.epoch == memory_epoch;
    if (thread.request == (PyObject *)request)
        memory_switch(as_request(request->parent));
    else if (thread.request != NULL)
        memory_settle(); /* it may be a child's, which lives on */
}

/* ---- probes: what the hooks see of requests made on purpose ---- */

static void *probe_malloc(int domain, size_t size)
{
    return domain == DOMAIN_RAW   ? PyMem_RawMalloc(size)
           : domain == DOMAIN_MEM ? PyMem_Malloc(size)
                                  : PyObject_Malloc(size);
}

static void *probe_realloc(int domain, void *block, size_t size)
{
    return domain == DOMAIN_RAW   ? PyMem_RawRealloc(block, size)
           : domain == DOMAIN_MEM ? PyMem_Realloc(block, size)
                                  : PyObject_Realloc(block, size);
}

static void probe_free(int domain, void *block)
{
    domain == DOMAIN_RAW   ? PyMem_RawFree(block)
    : domain == DOMAIN_MEM ? PyMem_Free(block)
                           : PyObject_Free(block);
}

/* A probe is charged to nobody. */
static thread_t begin_probe(void)
{
    thread_t saved = thread;
    give_to(0);
    return saved;
}

static unsigned long long seen_of(int domain, size_t size)
{
    unsigned long long before = asked_for();
    void *block = probe_malloc(domain, size);
    unsigned long long seen = asked_for() - before;
    probe_free(domain, block);
    return seen;
}

/* A hook over ours may allocate for itself; that does not depend on the size. */
static int is_reached(int domain)
{
    thread_t saved = begin_probe();
    seen_of(domain, 40);
    long long smaller = (long long)seen_of(domain, 40), larger = (long long)seen_of(domain, 77);
    thread = saved;
    return larger - smaller >= 37;
}

static int is_exact(void)
{
    static const size_t sizes[] = {0, 1, 8, 100, 500, 512, 513, PROBE_BYTES, 1 << 18};
    thread_t saved = begin_probe();
    int exact = 1;
    for (int domain = 0; domain < DOMAINS; domain++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            unsigned long long bytes = asked_for(), allocations = thread.allocations;
            void *block = probe_malloc(domain, sizes[i]);
            void *moved = block == NULL ? NULL : probe_realloc(domain, block, 2 * sizes[i] + 1);
            exact &= moved != NULL && asked_for() - bytes == asked(sizes[i]) + 2 * sizes[i] + 1 &&
                     thread.allocations - allocations == 2;
            probe_free(domain, moved != NULL ? moved : block);
        }
    thread = saved;
    return exact;
}

static int passes_on(int domain, size_t size)
{
    thread.passed = 0;
    void *block = probe_malloc(domain, size);
    int passed = thread.passed;
    probe_free(domain, block);
    return passed;
}

/* Find out how the domains above use the raw one; while the counting hooks are in place. */
static void calibrate(void)
{
    thread_t saved = begin_probe();
    calibrated.small_limit = 0;
    calibrated.passes_large_on =
        passes_on(DOMAIN_MEM, PROBE_BYTES) && passes_on(DOMAIN_OBJ, PROBE_BYTES);
    size_t limit = LARGE - 1;
    while (limit > 0 && (passes_on(DOMAIN_MEM, limit) || passes_on(DOMAIN_OBJ, limit)))
        limit -= 8;
    calibrated.small_limit = limit;
    thread = saved;
}

/* Whether blocks of this size get an owner, and lose it as they are freed. */
static int is_owned(int domain, size_t size)
{
    account_ref ref = open_account(0);
    account_t *account = account_of(ref);
    if (ref == 0 || account == NULL)
        return 0;
    thread_t saved = begin_probe();
    give_to(ref);
    void *block = probe_malloc(domain, size);
    give_to(0);
    int held = account->gil_held + held_in(account->raw) == (long long)size;
    probe_free(domain, block);
    held &= account->gil_held + held_in(account->raw) == 0;
    thread = saved;
    drop_account(ref);
    return held;
}

static long long find_owned_above(int mode)
{
    if (mode == MODE_SHADOW && is_owned(DOMAIN_OBJ, 24) && is_owned(DOMAIN_MEM, 24) &&
        is_owned(DOMAIN_OBJ, PROBE_BYTES))
        return -1;
    if (mode >= MODE_HYBRID && is_owned(DOMAIN_OBJ, LARGE) && is_owned(DOMAIN_MEM, LARGE) &&
        is_owned(DOMAIN_OBJ, PROBE_BYTES))
        return calibrated.passes_large_on ? (long long)calibrated.small_limit : LARGE - 1;
    return PY_SSIZE_T_MAX;
}

/* ---- install and uninstall; under the GIL ---- */

static int is_same(const allocator_t *a, const allocator_t *b)
{
    return a->ctx == b->ctx && a->malloc == b->malloc && a->calloc == b->calloc &&
           a->realloc == b->realloc && a->free == b->free;
}

/* Which of our layers the allocator is, or -1. */
static int layer_of(int domain, const allocator_t *allocator)
{
    for (int layer = 0; layer < memory.layers; layer++)
        for (int set = 0; set < SETS; set++)
            if (allocator->malloc == hooks[layer][domain][set].malloc)
                return layer;
    return -1;
}

static allocator_t hooks_of(int layer, int domain, int set)
{
    allocator_t ours = hooks[layer][domain][set];
    ours.ctx = wrapped[layer][domain].ctx;
    if (ours.free == NULL)
        ours.free = wrapped[layer][domain].free;
    return ours;
}

/* free() comes before the rest and goes after it, so that no block is given an owner whose end is
 * not seen. */
static void put(int domain, allocator_t next)
{
    allocator_t now, step;
    PyMem_GetAllocator(domain, &now);
    int layer = layer_of(domain, &now);
    if (layer >= 0 && now.free != wrapped[layer][domain].free && now.free != next.free) {
        step = next;
        step.free = now.free;
        PyMem_SetAllocator(domain, &step);
    } else if (now.free != next.free) {
        step = now;
        step.free = next.free;
        PyMem_SetAllocator(domain, &step);
    }
    PyMem_SetAllocator(domain, &next);
    memory.installed[domain] = next;
}

static void hold_every_shard(void)
{
    thread.forking = 1; /* whoever else is called before the fork may allocate */
    for (size_t i = 0; i < SHARDS; i++)
        lock_shard(i);
}

static void free_every_shard(void)
{
    for (size_t i = 0; i < SHARDS; i++)
        unlock_shard(i);
    thread.forking = 0;
}

/* Where the head of the interpreters is, by what 3.13 and later say of themselves to debuggers;
 * elsewhere a place where no interpreter ever is, and each look asks. */
static PyInterpreterState **find_interpreters(void)
{
    static PyInterpreterState *not_known;
    struct {
        char cookie[8];
        unsigned long long version, free_threaded, size, finalizing, head;
    } said;
    if (!_PyRuntime)
        return &not_known;
    memcpy(&said, _PyRuntime, sizeof(said));
    if (memcmp(said.cookie, "xdebugpy", 8) != 0 || said.head % sizeof(void *) != 0 ||
        said.head >= said.size)
        return &not_known;
    PyInterpreterState **found = (PyInterpreterState **)(_PyRuntime + said.head);
    return *found == PyInterpreterState_Head() ? found : &not_known;
}

/* "" or why hooks are impossible here. */
static const char *prepare_memory(void)
{
    if (memory.prepared)
        return "";
    if (sizeof(void *) != 8 || sizeof(unsigned long) != 8)
        return "memory can be attributed on 64-bit machines only";
    if (PyThreadState_GetInterpreter(PyThreadState_Get()) != PyInterpreterState_Main())
        return "memory is attributed in the main interpreter only";
    if (pthread_atfork(hold_every_shard, free_every_shard, free_every_shard) != 0)
        return "there is no memory left for the hooks";
    accounts[0].generation = 1; /* so that no reference is to it */
    many_gils = PY_VERSION_HEX >= 0x030C0000;
    interpreters = find_interpreters();
    main_interpreter = PyInterpreterState_Main();
    gil_table.most = MAX_GIL_SLOTS;
    gil_table.sparse = SPARSE_SLOTS;
    for (size_t i = 0; i < SHARDS; i++)
        shards[i].table.most = MAX_SHARD_SLOTS;
    memory.prepared = 1;
    return "";
}

static void forget_every_block(void)
{
    empty(&gil_table);
    forget_every_word();
    for (size_t i = 0; i < SHARDS; i++) {
        lock_shard(i);
        empty(&shards[i].table);
        unlock_shard(i);
    }
}

/* Whoever sees what this thread writes from now on has seen what it wrote before, on any memory
 * model: each CPU that runs a thread of this process passes a fence. Where the system refuses, only
 * x86-64's own order is left. */
static void pass_every_cpu(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#ifdef SYS_membarrier
    syscall(SYS_membarrier, 1 << 4, 0,
            0); /* MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, of Linux 4.14 */
    syscall(SYS_membarrier, 1 << 3, 0, 0); /* MEMBARRIER_CMD_PRIVATE_EXPEDITED */
#endif
}

/* The layer that wraps `base`; -1 with an exception set. */
static int find_layer(allocator_t *base)
{
    for (int layer = 0; layer < memory.layers; layer++) {
        int same = 1;
        for (int domain = 0; domain < DOMAINS; domain++)
            same &= is_same(&wrapped[layer][domain], &base[domain]);
        if (same)
            return layer;
    }
    if (memory.layers == LAYERS) {
        PyErr_SetString(PyExc_RuntimeError,
                        "memory hooks cannot be installed: other tools have replaced Python's "
                        "allocator too often in this process");
        return -1;
    }
    for (int domain = 0; domain < DOMAINS; domain++) {
        allocator_t *wraps = &wrapped[memory.layers][domain];
        wraps->ctx = base[domain].ctx;
        __atomic_store_n(&wraps->malloc, base[domain].malloc, __ATOMIC_RELAXED);
        __atomic_store_n(&wraps->calloc, base[domain].calloc, __ATOMIC_RELAXED);
        __atomic_store_n(&wraps->realloc, base[domain].realloc, __ATOMIC_RELAXED);
        __atomic_store_n(&wraps->free, base[domain].free, __ATOMIC_RELAXED);
    }
    pass_every_cpu();
    return memory.layers++;
}

/* What lies under us, and whether somebody else's hooks lie over ours. */
static int look_below(allocator_t *base)
{
    int buried = 0;
    for (int domain = 0; domain < DOMAINS; domain++) {
        allocator_t top;
        PyMem_GetAllocator(domain, &top);
        int layer = layer_of(domain, &top);
        base[domain] = layer < 0 ? top : wrapped[layer][domain];
        buried += layer < 0 && memory.layers > 0 && is_reached(domain);
    }
    return buried != 0;
}

static void begin_epoch(int mode)
{
    static unsigned int epochs;
    memory.mode = mode;
    memory_epoch = mode == MODE_OFF ? 0 : ++epochs;
    memory.lost = 0;
}

static int memory_set(int mode)
{
    static int last_mode;
    allocator_t base[DOMAINS];
    const char *fault = prepare_memory();
    if (*fault) {
        PyErr_Format(PyExc_RuntimeError, "memory hooks cannot be installed: %s", fault);
        return -1;
    }
    memory_close();
    if (look_below(base)) {
        if (mode != last_mode) {
            PyErr_Format(PyExc_RuntimeError,
                         "memory hooks cannot be changed to \"%s\" while another tool's allocator "
                         "hooks (tracemalloc's, for instance) lie over them: stop that tool first",
                         mode_names[mode]);
            return -1;
        }
        begin_epoch(mode);
        forget_every_block();
        memory.buried = 1;
        return 0;
    }
    int layer = find_layer(base);
    if (layer < 0)
        return -1;
    begin_epoch(mode);
    memory.buried = 0;
    for (int domain = 0; domain < DOMAINS; domain++)
        put(domain, hooks_of(layer, domain, SET_COUNTS));
    forget_every_block();
    calibrate();
    memory.exact = is_exact();
    for (int domain = 0; domain < DOMAINS; domain++) {
        int owns = domain == DOMAIN_RAW ? mode >= MODE_HYBRID
                                        : mode == MODE_SHADOW ||
                                              (mode == MODE_HYBRID && !calibrated.passes_large_on);
        calibrated.own_from[domain] = !owns ? SIZE_MAX : mode == MODE_SHADOW ? 1 : LARGE;
        put(domain, hooks_of(layer, domain, owns ? SET_OWNS : SET_COUNTS));
    }
    memory.owned_above = find_owned_above(mode);
    last_mode = mode;
    return 0;
}

static void memory_unset(void)
{
    memory_close();
    begin_epoch(MODE_OFF);
    for (int domain = 0; domain < DOMAINS && memory.layers > 0; domain++) {
        allocator_t top;
        PyMem_GetAllocator(domain, &top);
        int layer = layer_of(domain, &top);
        if (layer >= 0) /* else another tool has saved us, and would put us back: we stay, and
                           nobody looks */
            put(domain, wrapped[layer][domain]);
    }
}

/* Whether the hooks are still reached in every domain. */
static int is_in_place(void)
{
    if (memory.mode == MODE_OFF || memory.lost)
        return 0;
    memory.buried = 0;
    for (int domain = 0; domain < DOMAINS; domain++) {
        allocator_t top;
        PyMem_GetAllocator(domain, &top);
        if (is_same(&top, &memory.installed[domain]))
            continue;
        memory.buried = 1;
        memory.lost |= !is_reached(domain);
    }
    return !memory.lost;
}

/* ---- what Python calls ---- */

static PyObject *memory_py_install(PyObject *module, PyObject *arg)
{
    if (!PyUnicode_Check(arg)) {
        PyErr_SetString(PyExc_TypeError, "memory_install() takes the name of a mode");
        return NULL;
    }
    for (int mode = MODE_GROSS; mode <= MODE_SHADOW; mode++)
        if (PyUnicode_CompareWithASCIIString(arg, mode_names[mode]) == 0)
            return none_unless(memory_set(mode) < 0);
    PyErr_Format(PyExc_ValueError, "memory mode %R is not known: gross, hybrid or shadow", arg);
    return NULL;
}

static PyObject *memory_py_uninstall(PyObject *module, PyObject *ignored)
{
    memory_unset();
    Py_RETURN_NONE;
}

static PyObject *memory_py_state(PyObject *module, PyObject *ignored)
{
    int in_place = is_in_place();
    unsigned long long entries = gil_table.used, untracked = gil_table.refused + small.refused,
                       bytes = bytes_of(&gil_table); /* most words of small.h are never touched */
    for (size_t i = 0; i < SHARDS; i++) {
        lock_shard(i);
        entries += shards[i].table.used;
        untracked += shards[i].table.refused;
        bytes += bytes_of(&shards[i].table);
        unlock_shard(i);
    }
    const char *reason = "";
    if (memory.mode == MODE_OFF)
        reason = "the memory hooks are not installed";
    else if (!in_place)
        reason = "another tool has put its own allocator in the place of the memory hooks; what "
                 "was counted since they "
                 "were installed is not valid";
    else if (!memory.exact)
        reason = "the allocator that the memory hooks lie over was asked for other sizes than its "
                 "callers asked for";
    else if (memory.buried)
        reason = "another tool's allocator hooks lie over the memory hooks; what it allocates for "
                 "itself is counted";
    return Py_BuildValue(
        "{s:s,s:N,s:s,s:L,s:K,s:K,s:I,s:N,s:N,s:N,s:n,s:I,s:K,s:I,s:I,s:K}", "mode",
        mode_names[memory.mode], "valid", PyBool_FromLong(in_place && memory.exact), "reason",
        reason, "owned_above",
        memory.mode == MODE_OFF ? (long long)PY_SSIZE_T_MAX : memory.owned_above, "entries",
        entries, "untracked", untracked, "most_entries", (unsigned int)MAX_BLOCKS, "covered",
        PyBool_FromLong(memory.buried), "exact", PyBool_FromLong(memory.exact), "passes_large_on",
        PyBool_FromLong(calibrated.passes_large_on), "small_limit",
        (Py_ssize_t)calibrated.small_limit, "accounts", slab.fresh - 1, "accounts_refused",
        slab.refused, "most_accounts", (unsigned int)MAX_ACCOUNTS - 1, "epoch", memory_epoch,
        "table_bytes", bytes);
}

static PyObject *memory_charge(PyObject *module, PyObject *request)
{
    if (request != Py_None && as_request(request) == NULL) {
        PyErr_Format(PyExc_TypeError, "charge() takes a request or None, not %R", request);
        return NULL;
    }
    PyObject *before = Py_NewRef(thread.request == NULL ? Py_None : thread.request);
    memory_begin(as_request(request));
    return before;
}

/* What request_memory() says; 0 where that is None. `followed`: no other hooks came since. */
typedef struct {
    ns_t requested, allocations, owned, held, peak, blocks;
    int followed;
} held_t;

static int memory_of(Request *self, held_t *found)
{
    if (thread.request != NULL)
        memory_settle();
    int same = self->memory.epoch == memory_epoch && is_in_place();
    if (!self->memory.charged ||
        (!same && !(self->memory.sealed && self->memory.epoch != memory_epoch)))
        return 0;
    account_t *account = account_of(self->memory.account), nobody = {0};
    account = account == NULL ? &nobody : account;
    ns_t raw = __atomic_load_n(&account->raw, __ATOMIC_RELAXED),
         held = account->gil_held + held_in(raw),
         raw_peak = __atomic_load_n(&account->raw_peak, __ATOMIC_RELAXED),
         blocks = account->gil_blocks + blocks_in(raw);
    *found = (held_t){self->memory.requested,
                      self->memory.allocations,
                      self->memory.owned,
                      held > 0 ? held : 0,
                      account->gil_peak > raw_peak ? account->gil_peak : raw_peak,
                      blocks > 0 ? blocks : 0,
                      same};
    return 1;
}

static PyObject *memory_use_of(Request *self)
{
    held_t found;
    if (!memory_of(self, &found))
        Py_RETURN_NONE;
    if (!found.followed)
        return Py_BuildValue("(LLLOLO)", found.requested, found.allocations, found.owned, Py_None,
                             found.peak, Py_None);
    return Py_BuildValue("(LLLLLL)", found.requested, found.allocations, found.owned, found.held,
                         found.peak, found.blocks);
}

static void memory_move(Request *from, Request *to)
{
    if (thread.request != NULL)
        memory_settle();
    to->memory = from->memory;
    from->memory.account = 0;
    from->memory.charged = 0;
}

typedef struct {
    unsigned long address;
    unsigned long long size;
    unsigned int request;
} found_t;

static size_t find_marked(const table_t *table, found_t *found, size_t count, size_t most)
{
    for (size_t at = 0; table->slots != NULL && at <= table->slots->mask && count < most; at++) {
        const slot_t *slot = &table->slots->at[at];
        account_t *account = slot->address == 0 ? NULL : account_of(slot->value.owner);
        if (account != NULL && account->marked)
            found[count++] = (found_t){slot->address, slot->value.size, account->marked - 1u};
    }
    return count;
}

static size_t find_marked_words(found_t *found, size_t count, size_t most)
{
    for (size_t at = 0; at < CHUNK_SLOTS; at++)
        for (unsigned long i = 0; chunks[at].number != 0 && i < CHUNK_WORDS && count < most; i++) {
            unsigned int word = chunks[at].words[i];
            account_t *account = word == 0 ? NULL : owner_in(word);
            if (account != NULL && account->marked)
                found[count++] = (found_t){(chunks[at].number << CHUNK_BITS) + (i << 4),
                                           size_in(word), account->marked - 1u};
        }
    return count;
}

static void mark_requests(PyObject *requests, unsigned int marked)
{
    for (Py_ssize_t i = 0; i < PyList_Size(requests); i++) {
        Request *request = as_request(PyList_GetItem(requests, i));
        account_t *account = request == NULL ? NULL : account_of(request->memory.account);
        if (account != NULL)
            account->marked = (unsigned short)(marked ? i + 1 : 0);
    }
}

static PyObject *memory_py_blocks(PyObject *module, PyObject *args)
{
    PyObject *requests;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &requests, &most))
        return NULL;
    size_t bytes = (most > 0 ? (size_t)most : 1) * sizeof(found_t), count = 0;
    if (most <= 0 || bytes / sizeof(found_t) != (size_t)most || PyList_Size(requests) > USHRT_MAX)
        return PyList_New(0);
    found_t *found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        return PyErr_NoMemory();
    mark_requests(requests, 1);
    count = find_marked_words(found, count, (size_t)most);
    count = find_marked(&gil_table, found, count, (size_t)most);
    for (size_t i = 0; i < SHARDS; i++) {
        lock_shard(i);
        count = find_marked(&shards[i].table, found, count, (size_t)most);
        unlock_shard(i);
    }
    mark_requests(requests, 0);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *row = Py_BuildValue("(kKI)", found[i].address, found[i].size, found[i].request);
        if (row == NULL || PyList_SetItem(list, (Py_ssize_t)i, row) < 0)
            Py_CLEAR(list);
    }
    munmap(found, bytes);
    return list;
}
