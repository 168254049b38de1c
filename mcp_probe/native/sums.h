/* ---- Sums: what the plain records of one operation add up to (twin: aggregate/operations.py OperationTally.add) ---- */

enum { F_OUTCOME = 5, F_ARRIVAL = 7, F_END = 10, F_BUDGET = 11, F_STEPS = 12, F_STEP_MAX = 13, F_RUN_SUM = 16, F_DETACHED = 17,
       F_DECODE = 18, F_ENCODE = 19, F_CLIENT_WAIT = 20, F_REQUEST_BYTES = 21, F_RESPONSE_BYTES = 22, F_QUALITY = 24,
       F_PARTIAL = 25 };
#define ABSENT (-1)

typedef struct {
    short place[BUCKETS]; /* 1 + index into rows; 0: empty */
    struct { int bucket; unsigned int count; ns_t sum; } *rows;
    int used, room;
} buckets_t;

typedef struct {
    ns_t count, steps, step_max, detached, run_sum, longest, decodes, decode_ns, encodes, encode_ns, request_bytes_max,
        response_bytes_max, sums[KNOWN_PARTS], lo[KNOWN_PARTS], hi[KNOWN_PARTS], unseen[KNOWN_PARTS];
    char bounded[KNOWN_PARTS];
} sums_t;

typedef struct {
    PyObject_HEAD
    sums_t of;
    buckets_t totals, flushes;
} Sums;

static PyTypeObject *sums_type;

static void buckets_reset(buckets_t *found)
{
    memset(found->place, 0, sizeof(found->place));
    found->used = 0;
}

static void sums_reset(Sums *self)
{
    memset(&self->of, 0, sizeof(self->of));
    self->of.request_bytes_max = self->of.response_bytes_max = ABSENT;
    buckets_reset(&self->totals);
    buckets_reset(&self->flushes);
}

static PyObject *sums_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Sums *self = (Sums *)PyType_GenericAlloc(type, 0);
    if (self != NULL)
        sums_reset(self);
    return (PyObject *)self;
}

static void sums_dealloc(Sums *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(self->totals.rows);
    PyMem_Free(self->flushes.rows);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int make_bucket(buckets_t *found)
{
    return make_room((void **)&found->rows, found->used, &found->room, sizeof(found->rows[0]));
}

static void count_into(buckets_t *found, ns_t value)
{
    int bucket = bucket_of(value);
    if (!found->place[bucket]) {
        found->rows[found->used].bucket = bucket;
        found->rows[found->used].count = 0;
        found->rows[found->used].sum = 0;
        found->place[bucket] = (short)++found->used;
    }
    found->rows[found->place[bucket] - 1].count++;
    found->rows[found->place[bucket] - 1].sum += value;
}

/* 1: *value is a number. 0: None. -1: something else. */
static int number_of(PyObject *object, ns_t *value)
{
    int overflow = 0;
    if (object == NULL)
        return -1;
    if (object == Py_None)
        return 0;
    if (!PyLong_CheckExact(object))
        return -1;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow ? -1 : 1;
}

/* As number_of(), of a record's field; with or without an exception where it is -1. */
static int number_in(const shape_t *shape, PyObject *record, int field, ns_t *value)
{
    PyObject *found = PyObject_GetAttr(record, shape->names[field]);
    int known = number_of(found, value);
    Py_XDECREF(found);
    return known;
}

static int part_named(PyObject *name)
{
    for (int i = 0; i < KNOWN_PARTS; i++)
        if (name == budget_shape.names[i])
            return i;
    for (int i = 0; i < KNOWN_PARTS; i++)
        if (PyUnicode_Compare(name, budget_shape.names[i]) == 0)
            return i;
    return -1;
}

static void add_bound(sums_t *sums, int part, ns_t value, ns_t lo, ns_t hi)
{
    sums->bounded[part] = 1;
    sums->lo[part] += lo - value;
    sums->hi[part] += hi - value;
}

/* What is said of one part; 0 where it is none of the two kinds that plain records have. */
static int take_quality(sums_t *sums, PyObject *row, const ns_t *parts, const char *seen)
{
    if (!PyTuple_CheckExact(row) || PyTuple_Size(row) != 4)
        return 0;
    PyObject *tag = PyTuple_GetItem(row, 1), *lo = PyTuple_GetItem(row, 2), *hi = PyTuple_GetItem(row, 3);
    int part = part_named(PyTuple_GetItem(row, 0));
    if (part < 0 || !PyUnicode_Check(tag))
        return 0;
    if (PyUnicode_CompareWithASCIIString(tag, "unavailable") == 0)
        return !seen[part];
    if (PyUnicode_CompareWithASCIIString(tag, "bounded") != 0 || !seen[part] || !PyLong_CheckExact(lo) || !PyLong_CheckExact(hi))
        return 0;
    add_bound(sums, part, parts[part], PyLong_AsLongLong(lo), PyLong_AsLongLong(hi));
    return 1;
}

static void add_call(sums_t *sums, ns_t total, ns_t steps, ns_t step_max, ns_t detached)
{
    sums->count++;
    sums->steps += steps;
    sums->step_max = step_max > sums->step_max ? step_max : sums->step_max;
    sums->detached += detached;
    sums->longest = total > sums->longest ? total : sums->longest;
}

/* NULL and ABSENT: it has none. */
static void add_extras(sums_t *sums, const ns_t *decode, const ns_t *encode, ns_t request_bytes, ns_t response_bytes)
{
    sums->decodes += decode != NULL;
    sums->decode_ns += decode != NULL ? *decode : 0;
    sums->encodes += encode != NULL;
    sums->encode_ns += encode != NULL ? *encode : 0;
    sums->request_bytes_max = request_bytes > sums->request_bytes_max ? request_bytes : sums->request_bytes_max;
    sums->response_bytes_max = response_bytes > sums->response_bytes_max ? response_bytes : sums->response_bytes_max;
}

/* Everything that can fail comes before anything is added. 1: taken. 0: not a plain record. -1: an exception. */
static int take_record(Sums *self, PyObject *record)
{
    sums_t sums = self->of;
    ns_t arrival, end, steps, step_max, run_sum, detached, decode = 0, encode = 0, parts[KNOWN_PARTS];
    char seen[KNOWN_PARTS];
    PyObject *outcome = PyObject_GetAttr(record, record_shape.names[F_OUTCOME]),
             *partial = PyObject_GetAttr(record, record_shape.names[F_PARTIAL]),
             *wait = PyObject_GetAttr(record, record_shape.names[F_CLIENT_WAIT]);
    int plain = outcome != NULL && PyUnicode_Check(outcome) && PyUnicode_Compare(outcome, ok_outcome) == 0 &&
                partial == Py_False && wait == Py_None;
    Py_XDECREF(outcome);
    Py_XDECREF(partial);
    Py_XDECREF(wait);
    if (!plain || number_in(&record_shape, record, F_ARRIVAL, &arrival) != 1 ||
        number_in(&record_shape, record, F_END, &end) != 1 || number_in(&record_shape, record, F_STEPS, &steps) != 1 ||
        number_in(&record_shape, record, F_STEP_MAX, &step_max) != 1 ||
        number_in(&record_shape, record, F_RUN_SUM, &run_sum) != 1 ||
        number_in(&record_shape, record, F_DETACHED, &detached) != 1)
        return 0;
    int decoded = number_in(&record_shape, record, F_DECODE, &decode),
        encoded = number_in(&record_shape, record, F_ENCODE, &encode);
    ns_t request_bytes = ABSENT, response_bytes = ABSENT;
    if (decoded < 0 || encoded < 0 || number_in(&record_shape, record, F_REQUEST_BYTES, &request_bytes) < 0 ||
        number_in(&record_shape, record, F_RESPONSE_BYTES, &response_bytes) < 0)
        return 0;
    PyObject *budget = PyObject_GetAttr(record, record_shape.names[F_BUDGET]);
    for (int i = 0; plain && i < KNOWN_PARTS; i++) {
        int known = budget != NULL && (PyObject *)Py_TYPE(budget) == budget_shape.type
                        ? number_in(&budget_shape, budget, i, &parts[i]) : -1;
        plain = known >= 0;
        seen[i] = known == 1;
        if (known == 1)
            sums.sums[i] += parts[i];
        else
            sums.unseen[i]++;
    }
    Py_XDECREF(budget);
    PyObject *quality = plain ? PyObject_GetAttr(record, record_shape.names[F_QUALITY]) : NULL;
    plain = quality != NULL && PyTuple_CheckExact(quality);
    for (Py_ssize_t i = 0; plain && i < PyTuple_Size(quality); i++)
        plain = take_quality(&sums, PyTuple_GetItem(quality, i), parts, seen);
    Py_XDECREF(quality);
    if (!plain)
        return 0;
    if (make_bucket(&self->totals) < 0 || make_bucket(&self->flushes) < 0)
        return -1;
    add_call(&sums, at_least_0(end - arrival), steps, step_max, detached);
    sums.run_sum += run_sum;
    add_extras(&sums, decoded ? &decode : NULL, encoded ? &encode : NULL, request_bytes, response_bytes);
    self->of = sums;
    count_into(&self->totals, at_least_0(end - arrival));
    if (seen[WRITE_FLUSH])
        count_into(&self->flushes, parts[WRITE_FLUSH]);
    return 1;
}

static PyObject *sums_add(Sums *self, PyObject *record)
{
    if (record_shape.type == NULL || (PyObject *)Py_TYPE(record) != record_shape.type)
        Py_RETURN_FALSE;
    int taken = take_record(self, record);
    if (taken < 0)
        return NULL;
    PyErr_Clear();
    return PyBool_FromLong(taken);
}

/* As number_of(), of a request's slot. */
static int slot_number(PyObject *slot, ns_t *value)
{
    return slot == NULL ? 0 : number_of(slot, value);
}

/* What take_record() does with the record of a plain request, without one. 1: taken. 0: it is not plain. -1: an exception. */
static int take_request(Sums *self, Request *r, ns_t end, plain_t *plain)
{
    ns_t decode = 0, encode = 0, request_bytes = ABSENT, response_bytes = ABSENT;
    int known = PyUnicode_Compare(r->outcome, ok_outcome) == 0 ? plain_of(r, end, plain) : 0;
    if (known <= 0)
        return PyErr_Occurred() ? -1 : 0;
    int decoded = slot_number(r->decode_ns, &decode), encoded = slot_number(r->encode_ns, &encode);
    if (decoded < 0 || encoded < 0 || slot_number(r->request_bytes, &request_bytes) < 0 ||
        slot_number(r->response_bytes, &response_bytes) < 0)
        return 0;
    if (make_bucket(&self->totals) < 0 || make_bucket(&self->flushes) < 0)
        return -1;
    sums_t *sums = &self->of;
    for (int i = 0; i < KNOWN_PARTS; i++) {
        if (is_seen(r, i))
            sums->sums[i] += plain->parts[i];
        else
            sums->unseen[i]++;
    }
    for (int i = 0; i < plain->bound_count; i++) {
        const bound_t *bound = &plain->bounds[i];
        if (bound->lo >= 0)
            add_bound(sums, bound->part, plain->parts[bound->part], bound->lo, bound->hi);
    }
    add_call(sums, at_least_0(end - plain->arrival), plain->of.steps, plain->of.longest, r->detached_ns);
    add_extras(sums, decoded ? &decode : NULL, encoded ? &encode : NULL, request_bytes, response_bytes);
    count_into(&self->totals, at_least_0(end - plain->arrival));
    if (r->write_seen)
        count_into(&self->flushes, plain->parts[WRITE_FLUSH]);
    return 1;
}

static PyObject *rows_of(const buckets_t *found)
{
    PyObject *rows = PyList_New(0);
    for (int i = 0; rows != NULL && i < found->used; i++) {
        PyObject *row = Py_BuildValue("(iIL)", found->rows[i].bucket, found->rows[i].count, found->rows[i].sum);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

static PyObject *parts_of(const sums_t *sums)
{
    PyObject *rows = PyList_New(0);
    for (int i = 0; rows != NULL && i < KNOWN_PARTS; i++) {
        PyObject *row = Py_BuildValue("(LLLLi)", sums->unseen[i], sums->sums[i], sums->lo[i], sums->hi[i],
                                      sums->bounded[i]);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

static PyObject *sums_take(Sums *self, PyObject *ignored)
{
    const sums_t *sums = &self->of;
    if (!sums->count)
        Py_RETURN_NONE;
    PyObject *totals = rows_of(&self->totals), *flushes = rows_of(&self->flushes), *parts = parts_of(sums), *found = NULL;
    if (totals != NULL && flushes != NULL && parts != NULL)
        found = Py_BuildValue("(LLLLLLLLLLLLOOO)", sums->count, sums->steps, sums->step_max, sums->detached, sums->run_sum,
                              sums->longest, sums->decodes, sums->decode_ns, sums->encodes, sums->encode_ns,
                              sums->request_bytes_max, sums->response_bytes_max, parts, totals, flushes);
    Py_XDECREF(totals);
    Py_XDECREF(flushes);
    Py_XDECREF(parts);
    if (found != NULL)
        sums_reset(self);
    return found;
}

static PyMethodDef sums_methods[] = {
    {"add", (PyCFunction)sums_add, METH_O, "Take a record in; False where it is not a plain one."},
    {"take", (PyCFunction)sums_take, METH_NOARGS, "What was added since the last call, or None."},
    {NULL}};
static PyType_Slot sums_slots[] = {{Py_tp_new, sums_new}, {Py_tp_dealloc, sums_dealloc}, {Py_tp_methods, sums_methods}, {0, NULL}};
static PyType_Spec sums_spec = {"mcp_probe.native._core.Sums", sizeof(Sums), 0, Py_TPFLAGS_DEFAULT, sums_slots};

/* ---- what the transport's own jobs did to a pool (twin: capture/executor.py Pool._take_transport) ---- */

typedef struct {
    ns_t at;
    int delta;
} edge_t;

static int by_time(const void *a, const void *b)
{
    const edge_t *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : x->delta - y->delta;
}

/* transport_levels(batch, level, limit or None, start, finish): (last_ns, level, jobs, wait_ns, longest wait, peak), or
 * None where not all of the batch is the transport's, or the pool was full. */
static PyObject *core_transport_levels(PyObject *module, PyObject *args)
{
    PyObject *batch, *limit;
    ns_t level, wait_ns = 0, longest = 0, jobs = 0;
    long start, finish;
    if (!PyArg_ParseTuple(args, "O!LOll", &PyList_Type, &batch, &level, &limit, &start, &finish))
        return NULL;
    Py_ssize_t count = PyList_Size(batch), used = 0;
    double most = limit == Py_None ? INFINITY : PyFloat_AsDouble(limit);
    edge_t *edges = PyMem_Malloc((2 * count + 1) * sizeof(edge_t));
    if (edges == NULL)
        return PyErr_NoMemory();
    int plain = count > 0 && !PyErr_Occurred();
    for (Py_ssize_t i = 0; plain && i < count; i++) {
        PyObject *row = PyList_GetItem(batch, i);
        plain = row != NULL && PyTuple_CheckExact(row) && PyTuple_Size(row) == 4;
        if (!plain)
            break;
        ns_t at = PyLong_AsLongLong(PyTuple_GetItem(row, 0)), wait = -1;
        long kind = PyLong_AsLong(PyTuple_GetItem(row, 1));
        PyObject *job = PyTuple_GetItem(row, 3);
        if (PyTuple_CheckExact(job) && PyTuple_Size(job) == 2) {
            wait = PyLong_AsLongLong(PyTuple_GetItem(job, 1));
            edges[used++] = (edge_t){PyLong_AsLongLong(PyTuple_GetItem(job, 0)), 1};
            edges[used++] = (edge_t){at, -1};
        }
        else if (kind == start && PyLong_Check(job)) {
            wait = PyLong_AsLongLong(job);
            edges[used++] = (edge_t){at, 1};
        }
        else if (kind == finish)
            edges[used++] = (edge_t){at, -1};
        else
            plain = 0;
        if (wait >= 0) {
            jobs++;
            wait_ns += wait;
            longest = wait > longest ? wait : longest;
        }
    }
    ns_t peak = level;
    if (plain && !PyErr_Occurred()) {
        qsort(edges, used, sizeof(edge_t), by_time);
        for (Py_ssize_t i = 0; i < used; i++)
            if ((level += edges[i].delta) > peak)
                peak = level;
    }
    ns_t last = used ? edges[used - 1].at : 0;
    PyMem_Free(edges);
    if (PyErr_Occurred())
        return NULL;
    if (!plain || (double)peak >= most)
        Py_RETURN_NONE;
    return Py_BuildValue("(LLLLLL)", last, level, jobs, wait_ns, longest, peak);
}
