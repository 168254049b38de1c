/* ---- the finished record of a request (twin: record/assemble.py) ---- */

static ns_t at_least_0(ns_t value)
{
    return value > 0 ? value : 0;
}

typedef struct {
    ns_t busy, ready_wait, returning, awaiting, awaits, steps, longest, immediate, vague;
} single_t;

/* Twin of record/assemble.py _count and _fold_single for a request without threads, children or collector pauses.
 * Returns 0 where that is not what it is, or where its late waits must be looked at one by one. */
static int fold_single(Request *self, ns_t start, ns_t end, single_t *found)
{
    if (self->unit_peak > 1)
        return 0;
    ns_t unit = self->unit_count ? self->units[0].unit : 0;
    if (!unit && self->mark_count)
        unit = self->marks[0].unit;
    if (!unit && self->mark_count)
        return 0;
    ns_t cursor = start, busy = 0, ready_wait = 0, returning = 0, awaiting = 0, awaits = 0;
    ns_t longest = 0, steps = 0, immediate = 0, vague = 0, since = 0, ended_before = 0, unit_before = 0;
    int seen = 0, late = 0;
    for (int i = 0; i < self->mark_count; i++) {
        const mark_t *m = &self->marks[i];
        ns_t suspended = m->suspended;
        if (m->unit != unit || suspended < cursor) {
            if (m->unit != unit || cursor != start)
                return 0;
            suspended = cursor;
        }
        if (m->start < cursor)
            return 0;
        ns_t began = m->start < end ? m->start : end; /* what comes after the result claims nothing */
        if (m->wake != WAKE_UNKNOWN) {
            ns_t at = m->ready > suspended ? m->ready : suspended;
            if (at > m->start)
                at = m->start;
            if (at > suspended)
                awaits++;
            if (at > end)
                at = end;
            if (at > suspended)
                awaiting += at - suspended;
            if (suspended > at)
                at = began;
            if (m->wake == WAKE_THREAD)
                returning += began - at;
            else
                ready_wait += began - at;
        }
        cursor = m->end < end ? m->end : end;
        if (cursor > began)
            busy += cursor - began;
        /* counts */
        began = m->start;
        if (m->wake == WAKE_SPLIT && m->unit == unit_before && began == ended_before)
            began = since;
        else {
            int first = !seen;
            seen = 1;
            if (first || m->wake != WAKE_SPLIT)
                steps++;
            if (!(first || m->wake == WAKE_SPLIT) && m->ready <= m->suspended && m->earliest != m->suspended)
                immediate++;
        }
        unit_before = m->unit;
        since = began;
        ended_before = m->end;
        if (m->end - began > longest)
            longest = m->end - began;
        if (m->wake == WAKE_UNKNOWN || m->wake == WAKE_SPLIT)
            continue;
        ns_t floor_ns = m->earliest > m->suspended ? m->earliest : m->suspended;
        if (m->ready > floor_ns)
            vague += m->ready - floor_ns;
        if (began - floor_ns > LATE_NS)
            late = 1;
    }
    if (late)
        return 0;
    if (self->unit_count) {
        ns_t from = self->units[0].end > cursor ? self->units[0].end : cursor;
        if (end > from)
            awaiting += end - from;
    }
    *found = (single_t){busy, ready_wait, returning, awaiting, awaits, steps, longest, immediate, vague};
    return 1;
}

static PyObject *request_fold_single(Request *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "fold_single(start, end)");
        return NULL;
    }
    ns_t start = PyLong_AsLongLong(args[0]), end = PyLong_AsLongLong(args[1]);
    single_t f;
    if (PyErr_Occurred())
        return NULL;
    if (!fold_single(self, start, end, &f))
        Py_RETURN_NONE;
    return Py_BuildValue("(LLLLLLLLL)", f.busy, f.ready_wait, f.returning, f.awaiting, f.awaits, f.steps, f.longest,
                         f.immediate, f.vague);
}

/* The finished record of the plainest request: everything about it was seen, and nothing was late.
 * What record/assemble.py makes of any other request. */

#define MAX_FIELDS 64
#define MAX_TEXT 128 /* record/assemble.py */

typedef struct {
    PyObject *type, *names[MAX_FIELDS], *defaults[MAX_FIELDS];
    int count;
} shape_t;

static shape_t record_shape, budget_shape;

/* Sets the first `given` fields from values (stolen, NULL where making one failed) and the rest to their defaults. */
static PyObject *fill(const shape_t *shape, PyObject **values, int given)
{
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)shape->type, 0);
    for (int i = 0; i < shape->count; i++) {
        PyObject *value = i < given ? values[i] : Py_NewRef(shape->defaults[i]);
        if (value == NULL || (made != NULL && PyObject_GenericSetAttr(made, shape->names[i], value) < 0))
            Py_CLEAR(made);
        Py_XDECREF(value);
    }
    if (made == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "a record has more fields than the accelerator knows");
    return made;
}

static PyObject *or_none_object(PyObject *slot)
{
    return Py_NewRef(slot == NULL ? Py_None : slot);
}

static PyObject *hex_or_none(PyObject *number, const char *format)
{
    if (!is_set(number))
        Py_RETURN_NONE;
    PyObject *spec = PyUnicode_FromString(format);
    PyObject *text = spec == NULL ? NULL : PyObject_Format(number, spec);
    Py_XDECREF(spec);
    return text;
}

/* Kept only where there is a span. */
static PyObject *shown_request_id(Request *r)
{
    if (!is_set(r->span_id) || !is_set(r->request_id))
        Py_RETURN_NONE;
    PyObject *text = PyObject_Str(r->request_id);
    PyObject *shown = text == NULL ? NULL : PyUnicode_Substring(text, 0, MAX_TEXT);
    Py_XDECREF(text);
    return shown;
}

static int is_plain_request(Request *r)
{
    if (r->partial || is_set(r->spilled) || !is_set(r->arrival_ns) ||
        !is_set(r->taken_ns) || !is_set(r->first_step_ns) || !is_set(r->result_ns) || !is_set(r->write_taken_ns) ||
        PySequence_Size(r->jobs) || PySequence_Size(r->pauses) || PySequence_Size(r->client_waits))
        return 0;
    return 1;
}

static const char *const known_fields[] = {
    "id", "kind", "method", "name", "transport", "outcome", "error", "arrival_ns", "first_step_ns", "result_ns", "end_ns",
    "budget", "steps", "step_max_ns", "immediate_resumes", "sequential_awaits", "executor_run_sum_ns", "detached_ns",
    "decode_ns", "encode_ns", "client_wait_ns", "request_bytes", "response_bytes", "waits", "quality", "partial", "loop",
    "protocol_version", "trace_id", "span_id", "parent_span_id", "trace_flags", "trace_state", "server_span",
    "resource_uri", "session_id", "error_code", "request_id"};
static const char *const known_parts[] = {
    "queue_transport", "queue_dispatch", "busy", "ready_wait", "executor_wait", "executor_run", "executor_return",
    "awaiting", "write_wait", "write_flush", "gc", "unaccounted"};
#define KNOWN_FIELDS ((int)(sizeof(known_fields) / sizeof(known_fields[0])))
#define KNOWN_PARTS ((int)(sizeof(known_parts) / sizeof(known_parts[0])))

enum { QUEUE_TRANSPORT = 0, READY_WAIT = 3, AWAITING = 7, WRITE_WAIT = 8, WRITE_FLUSH = 9 }; /* places in known_parts */

/* What is not exact about one part: between lo and hi, or unavailable where lo is -1. */
typedef struct {
    int part;
    ns_t lo, hi;
} bound_t;
#define MAX_BOUNDS 5

/* A plain request, in numbers. */
typedef struct {
    ns_t arrival, result, parts[KNOWN_PARTS];
    single_t of;
    bound_t bounds[MAX_BOUNDS];
    int bound_count;
} plain_t;

static int is_seen(const Request *r, int part)
{
    return part == QUEUE_TRANSPORT ? r->transport_seen : part == WRITE_FLUSH ? r->write_seen : 1;
}

static int bounds_of(const Request *r, const plain_t *plain, ns_t vague_arrival, bound_t *bounds)
{
    const single_t *f = &plain->of;
    const ns_t *parts = plain->parts;
    int count = 0;
    if (!r->transport_seen)
        bounds[count++] = (bound_t){QUEUE_TRANSPORT, -1, -1};
    else if (vague_arrival > 0)
        bounds[count++] = (bound_t){QUEUE_TRANSPORT, parts[QUEUE_TRANSPORT], parts[QUEUE_TRANSPORT] + vague_arrival};
    if (!r->write_seen) {
        bounds[count++] = (bound_t){WRITE_WAIT, 0, parts[WRITE_WAIT]};
        bounds[count++] = (bound_t){WRITE_FLUSH, -1, -1};
    }
    if (f->vague > 0) {
        bounds[count++] = (bound_t){READY_WAIT, f->ready_wait, f->ready_wait + f->vague};
        bounds[count++] = (bound_t){AWAITING, at_least_0(f->awaiting - f->vague), f->awaiting};
    }
    return count;
}

/* 1: the request is plain. 0: it is not. -1: an exception. */
static int plain_of(Request *r, ns_t end, plain_t *plain)
{
    if (!is_plain_request(r)) {
        PyErr_Clear();
        return 0;
    }
    ns_t arrival = PyLong_AsLongLong(r->arrival_ns), taken = PyLong_AsLongLong(r->taken_ns),
         first = PyLong_AsLongLong(r->first_step_ns), result = PyLong_AsLongLong(r->result_ns),
         written = PyLong_AsLongLong(r->write_taken_ns),
         earliest = is_set(r->arrival_earliest_ns) ? PyLong_AsLongLong(r->arrival_earliest_ns) : arrival;
    if (PyErr_Occurred())
        return -1;
    single_t *f = &plain->of;
    first = first < result ? first : result;
    if (first - (earliest < arrival ? earliest : arrival) > LATE_NS || !fold_single(r, first, result, f))
        return 0;
    ns_t known = f->busy + f->ready_wait + f->returning + f->awaiting;
    ns_t parts[] = {at_least_0(taken - arrival), at_least_0(first - taken), f->busy, f->ready_wait, 0, 0, f->returning,
                    f->awaiting, at_least_0(written - result), at_least_0(end - written), 0, result - first - known};
    memcpy(plain->parts, parts, sizeof(parts));
    plain->arrival = arrival;
    plain->result = result;
    plain->bound_count = bounds_of(r, plain, arrival - earliest, plain->bounds);
    return 1;
}

/* (part, "bounded", lo, hi) or (part, "unavailable", None, None) of each. */
static PyObject *quality_rows(const plain_t *plain)
{
    PyObject *rows = plain->bound_count ? PyTuple_New(plain->bound_count) : Py_NewRef(empty_tuple);
    for (int i = 0; rows != NULL && i < plain->bound_count; i++) {
        const bound_t *bound = &plain->bounds[i];
        PyObject *row = bound->lo < 0
                            ? Py_BuildValue("(ssOO)", known_parts[bound->part], "unavailable", Py_None, Py_None)
                            : Py_BuildValue("(ssLL)", known_parts[bound->part], "bounded", bound->lo, bound->hi);
        if (row == NULL || PyTuple_SetItem(rows, i, row) < 0)
            Py_CLEAR(rows);
    }
    return rows;
}

static PyObject *request_record(Request *r, PyObject *ended)
{
    plain_t plain;
    ns_t end = PyLong_AsLongLong(ended);
    if (end == -1 && PyErr_Occurred())
        return NULL;
    int found = record_shape.type == NULL ? 0 : plain_of(r, end, &plain);
    if (found < 0)
        return NULL;
    if (!found)
        Py_RETURN_NONE;
    const single_t *f = &plain.of;
    PyObject *numbers[KNOWN_PARTS];
    for (int i = 0; i < KNOWN_PARTS; i++)
        numbers[i] = is_seen(r, i) ? PyLong_FromLongLong(plain.parts[i]) : Py_NewRef(Py_None);
    PyObject *budget = fill(&budget_shape, numbers, KNOWN_PARTS);
    PyObject *quality = quality_rows(&plain);
    PyObject *values[] = {Py_NewRef(r->id), Py_NewRef(r->kind), Py_NewRef(r->method), Py_NewRef(r->name),
                          Py_NewRef(r->transport), Py_NewRef(r->outcome), or_none_object(r->error),
                          Py_NewRef(r->arrival_ns), Py_NewRef(r->first_step_ns), Py_NewRef(r->result_ns),
                          Py_NewRef(ended), budget, PyLong_FromLongLong(f->steps), PyLong_FromLongLong(f->longest),
                          PyLong_FromLongLong(f->immediate), PyLong_FromLongLong(f->awaits), PyLong_FromLong(0),
                          PyLong_FromLongLong(r->detached_ns), or_none_object(r->decode_ns),
                          or_none_object(r->encode_ns), Py_NewRef(Py_None), or_none_object(r->request_bytes),
                          or_none_object(r->response_bytes), Py_NewRef(empty_tuple), quality,
                          Py_NewRef(Py_False), or_none_object(r->loop), or_none_object(r->protocol_version),
                          hex_or_none(r->trace_id, "032x"), hex_or_none(r->span_id, "016x"),
                          or_none_object(r->parent_span_id), or_none_object(r->trace_flags),
                          or_none_object(r->trace_state), or_none_object(r->server_span),
                          or_none_object(r->resource_uri), or_none_object(r->session_id),
                          or_none_object(r->error_code), shown_request_id(r)};
    return fill(&record_shape, values, KNOWN_FIELDS);
}
