/* The hot path in C: what capture writes while a request lives, a loop's steps and polls, and the loop's own
 * call_soon and select around them.
 *
 * Twin of the Python in record/raw.py (Request), capture/steps.py (Steps) and adapters/asyncio_loop.py (Handle,
 * CallSoon, Poll); tests run both. Everything here runs under the GIL; nothing is called while a field is half set.
 * Limited API of CPython 3.10, plus a few functions every release from 3.10 to 3.13 exports with the same signature
 * (declared below); mcp_probe/native/__init__.py loads this module on those releases only.
 */
#define _GNU_SOURCE 1
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <sched.h>
#include <semaphore.h>
#include <stddef.h>
#include <string.h>
#include <stdio.h>
#include <structmember.h>
#include <time.h>
#include <unistd.h>

/* Exported by every CPython 3.10-3.13, outside its limited API. */
typedef PyObject *(*vectorcall_t)(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames);
extern PyObject *PyVectorcall_Call(PyObject *, PyObject *, PyObject *);
extern PyObject *PyMethod_New(PyObject *, PyObject *);
extern PyObject *PyContext_CopyCurrent(void);
extern int PyContext_Enter(PyObject *);
extern int PyContext_Exit(PyObject *);
extern int PyContextVar_Get(PyObject *, PyObject *, PyObject **);
extern PyTypeObject PyContext_Type;
extern PyObject *PyContextVar_Set(PyObject *, PyObject *);
#define HAVE_VECTORCALL (1UL << 11)
#ifndef Py_TPFLAGS_METHOD_DESCRIPTOR
#define Py_TPFLAGS_METHOD_DESCRIPTOR (1UL << 17)
#endif
#define NARGS(nargsf) ((Py_ssize_t)((nargsf) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))

typedef long long ns_t;

enum { WAKE_LOOP = 0, WAKE_THREAD = 1, WAKE_SOCKET = 2, WAKE_UNKNOWN = 3, WAKE_SPLIT = 4 };
#define RING_NS 500000LL
#define LATE_NS 1000000LL
#define MAX_MARKS 256
#define BUCKETS 976 /* of an iteration's length, up to 2^63 ns */

static inline ns_t now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (ns_t)at.tv_sec * 1000000000LL + at.tv_nsec;
}

static PyObject *str_closed, *str_debug, *str_ready, *str_self, *str_done, *str_keep, *str_settle, *str_charge,
    *str_write_to_self, *str_run, *str_broken, *str_writing, *str_flushed, *str__context, *str_get,
    *str_message, *str_params, *str_name, *str_method, *str_id, *str_error, *str_result, *str_is_error, *str_forget,
    *str_finish, *str_consumed, *str_waiting, *str_arrived_by, *str_answered, *str_asking, *str_context, *empty_tuple;
static PyTypeObject *request_type, *steps_type, *handle_type;

static void keep(PyObject **slot, PyObject *value)
{
    PyObject *before = *slot;
    *slot = Py_NewRef(value);
    Py_XDECREF(before);
}

/* ---- Request: one request while it lives (twin: record/raw.py PythonRequest) ---- */

typedef struct {
    ns_t unit, suspended, earliest, ready, start, end;
    int wake;
} mark_t;

typedef struct {
    ns_t unit, end;
} unit_t;

typedef struct {
    PyObject_HEAD
    PyObject *id, *kind, *method, *name, *transport;
    PyObject *request_id, *protocol_version, *session, *channel, *parent, *loop, *arrival_ns, *arrival_earliest_ns,
        *taken_ns, *first_step_ns, *result_ns, *write_taken_ns, *flushed_ns, *end_ns, *outcome, *error, *jobs, *pauses,
        *client_waits, *spilled, *decode_ns, *encode_ns, *request_bytes, *response_bytes, *trace_id, *span_id,
        *parent_span_id, *trace_flags, *trace_state, *server_span, *resource_uri, *session_id, *error_code;
    ns_t handler, detached_ns;
    char settles, ended, transport_seen, write_seen, partial, seen_open;
    int mark_count, mark_room, unit_count, unit_room;
    mark_t *marks, own_marks[6];
    unit_t *units, own_units[4];
} Request;

#define FIRST_OBJECT offsetof(Request, id)
#define LAST_OBJECT offsetof(Request, error_code)

static PyObject *ok_outcome, *cancelled_outcome;

static PyObject *request_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *id, *kind, *method, *name, *transport;
    if (kwargs != NULL && PyDict_Size(kwargs) != 0) {
        PyErr_SetString(PyExc_TypeError, "a request takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_UnpackTuple(args, "Request", 5, 5, &id, &kind, &method, &name, &transport))
        return NULL;
    Request *self = (Request *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->id = Py_NewRef(id);
    self->kind = Py_NewRef(kind);
    self->method = Py_NewRef(method);
    self->name = Py_NewRef(name);
    self->transport = Py_NewRef(transport);
    self->outcome = Py_NewRef(ok_outcome);
    self->jobs = Py_NewRef(empty_tuple);
    self->pauses = Py_NewRef(empty_tuple);
    self->client_waits = Py_NewRef(empty_tuple);
    self->transport_seen = 1;
    self->marks = self->own_marks;
    self->mark_room = sizeof(self->own_marks) / sizeof(mark_t);
    self->units = self->own_units;
    self->unit_room = sizeof(self->own_units) / sizeof(unit_t);
    return (PyObject *)self;
}

static int request_traverse(Request *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (size_t at = FIRST_OBJECT; at <= LAST_OBJECT; at += sizeof(PyObject *))
        Py_VISIT(*(PyObject **)((char *)self + at));
    return 0;
}

static int request_clear(Request *self)
{
    for (size_t at = FIRST_OBJECT; at <= LAST_OBJECT; at += sizeof(PyObject *)) {
        PyObject **slot = (PyObject **)((char *)self + at);
        Py_CLEAR(*slot);
    }
    return 0;
}

static void request_dealloc(Request *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    request_clear(self);
    if (self->marks != self->own_marks)
        PyMem_Free(self->marks);
    if (self->units != self->own_units)
        PyMem_Free(self->units);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static int add_mark(Request *self, ns_t unit, ns_t suspended, ns_t earliest, ns_t ready, ns_t start, ns_t end, int wake)
{
    if (self->mark_count == self->mark_room) {
        int room = self->mark_room * 4;
        mark_t *marks = PyMem_Malloc(room * sizeof(mark_t));
        if (marks == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(marks, self->marks, self->mark_count * sizeof(mark_t));
        if (self->marks != self->own_marks)
            PyMem_Free(self->marks);
        self->marks = marks;
        self->mark_room = room;
    }
    self->marks[self->mark_count++] = (mark_t){unit, suspended, earliest, ready, start, end, wake};
    return 0;
}

static unit_t *find_unit(Request *self, ns_t unit)
{
    for (int i = self->unit_count - 1; i >= 0; i--)
        if (self->units[i].unit == unit)
            return &self->units[i];
    return NULL;
}

static int set_unit(Request *self, ns_t unit, ns_t end)
{
    unit_t *known = find_unit(self, unit);
    if (known != NULL) {
        known->end = end;
        return 0;
    }
    if (self->unit_count == self->unit_room) {
        int room = self->unit_room * 4;
        unit_t *units = PyMem_Malloc(room * sizeof(unit_t));
        if (units == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(units, self->units, self->unit_count * sizeof(unit_t));
        if (self->units != self->own_units)
            PyMem_Free(self->units);
        self->units = units;
        self->unit_room = room;
    }
    self->units[self->unit_count++] = (unit_t){unit, end};
    return 0;
}

static void drop_unit(Request *self, ns_t unit)
{
    unit_t *known = find_unit(self, unit);
    if (known != NULL) {
        memmove(known, known + 1, (char *)(self->units + self->unit_count) - (char *)(known + 1));
        self->unit_count--;
    }
}

static PyObject *request_get_marks(Request *self, void *closure)
{
    int count = self->mark_count;
    PyObject *marks = PyTuple_New(count);
    for (int i = 0; marks != NULL && i < count; i++) {
        mark_t m = self->marks[i];
        PyObject *mark = Py_BuildValue("(LLLLLLi)", m.unit, m.suspended, m.earliest, m.ready, m.start, m.end, m.wake);
        if (mark == NULL || PyTuple_SetItem(marks, i, mark) < 0)
            Py_CLEAR(marks);
    }
    return marks;
}

static PyObject *request_add_mark(Request *self, PyObject *mark)
{
    ns_t unit, suspended, earliest, ready, start, end;
    int wake;
    if (!PyArg_ParseTuple(mark, "LLLLLLi", &unit, &suspended, &earliest, &ready, &start, &end, &wake))
        return NULL;
    if (add_mark(self, unit, suspended, earliest, ready, start, end, wake) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *request_set_unit(Request *self, PyObject *args)
{
    ns_t unit, end;
    if (!PyArg_ParseTuple(args, "LL", &unit, &end) || set_unit(self, unit, end) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *request_drop_unit(Request *self, PyObject *arg)
{
    ns_t unit = PyLong_AsLongLong(arg);
    if (unit == -1 && PyErr_Occurred())
        return NULL;
    drop_unit(self, unit);
    Py_RETURN_NONE;
}

static PyObject *request_clear_marks(Request *self, PyObject *ignored)
{
    self->mark_count = 0;
    Py_RETURN_NONE;
}

static PyObject *request_get_units(Request *self, void *closure)
{
    PyObject *units = PyDict_New();
    for (int i = 0; units != NULL && i < self->unit_count; i++) {
        PyObject *key = PyLong_FromLongLong(self->units[i].unit), *end = PyLong_FromLongLong(self->units[i].end);
        if (key == NULL || end == NULL || PyDict_SetItem(units, key, end) < 0)
            Py_CLEAR(units);
        Py_XDECREF(key);
        Py_XDECREF(end);
    }
    PyObject *view = units == NULL ? NULL : PyDictProxy_New(units);
    Py_XDECREF(units);
    return view;
}

static int request_set_units(Request *self, PyObject *units, void *closure)
{
    if (units == NULL || !PyDict_Check(units)) {
        PyErr_SetString(PyExc_TypeError, "units must be a dict");
        return -1;
    }
    PyObject *key, *end;
    Py_ssize_t at = 0;
    self->unit_count = 0;
    while (PyDict_Next(units, &at, &key, &end)) {
        ns_t unit = PyLong_AsLongLong(key), value = PyLong_AsLongLong(end);
        if (PyErr_Occurred() || set_unit(self, unit, value) < 0)
            return -1;
    }
    return 0;
}

static PyObject *request_small_steps(Request *self, PyObject *ignored)
{
    ns_t total = 0;
    int count = 0;
    for (int i = 0; i < self->mark_count; i++) {
        ns_t length = self->marks[i].end - self->marks[i].start;
        if (length < RING_NS) {
            count++;
            total += length;
        }
    }
    return Py_BuildValue("(iL)", count, total);
}

typedef struct {
    ns_t busy, ready_wait, returning, awaiting, awaits, steps, longest, immediate, vague;
} single_t;

/* Twin of record/assemble.py _count and _fold_single for a request without threads, children or collector pauses.
 * Returns 0 where that is not what it is, or where its late waits must be looked at one by one. */
static int fold_single(Request *self, ns_t start, ns_t end, single_t *found)
{
    if (self->unit_count > 1)
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

static int is_set(PyObject *slot)
{
    return slot != NULL && slot != Py_None;
}

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

static ns_t at_least_0(ns_t value)
{
    return value > 0 ? value : 0;
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

/* What is not exact about it: (part, "bounded", lo, hi) or (part, "unavailable", None, None) each. */
static PyObject *quality_rows(const Request *r, const ns_t *parts, ns_t vague_arrival, const single_t *f)
{
    if (vague_arrival <= 0 && f->vague <= 0 && r->transport_seen && r->write_seen)
        return Py_NewRef(empty_tuple);
    PyObject *rows = PyList_New(0), *found = NULL;
    struct {
        const char *part;
        ns_t lo, hi; /* -1: unavailable */
        int holds;
    } bounds[] = {{"queue_transport", -1, -1, !r->transport_seen},
                  {"queue_transport", parts[0], parts[0] + vague_arrival, r->transport_seen && vague_arrival > 0},
                  {"write_wait", 0, parts[8], !r->write_seen},
                  {"write_flush", -1, -1, !r->write_seen},
                  {"ready_wait", f->ready_wait, f->ready_wait + f->vague, f->vague > 0},
                  {"awaiting", at_least_0(f->awaiting - f->vague), f->awaiting, f->vague > 0}};
    for (int i = 0; rows != NULL && i < 6; i++) {
        if (!bounds[i].holds)
            continue;
        PyObject *row = bounds[i].lo < 0 ? Py_BuildValue("(ssOO)", bounds[i].part, "unavailable", Py_None, Py_None)
                                         : Py_BuildValue("(ssLL)", bounds[i].part, "bounded", bounds[i].lo, bounds[i].hi);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    if (rows != NULL)
        found = PyList_AsTuple(rows);
    Py_XDECREF(rows);
    return found;
}

static PyObject *request_record(Request *r, PyObject *ended)
{
    if (record_shape.type == NULL || !is_plain_request(r)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    ns_t end = PyLong_AsLongLong(ended), arrival = PyLong_AsLongLong(r->arrival_ns),
         taken = PyLong_AsLongLong(r->taken_ns), first = PyLong_AsLongLong(r->first_step_ns),
         result = PyLong_AsLongLong(r->result_ns), written = PyLong_AsLongLong(r->write_taken_ns),
         earliest = is_set(r->arrival_earliest_ns) ? PyLong_AsLongLong(r->arrival_earliest_ns) : arrival;
    single_t f;
    if (PyErr_Occurred())
        return NULL;
    first = first < result ? first : result;
    if (first - (earliest < arrival ? earliest : arrival) > LATE_NS || !fold_single(r, first, result, &f))
        Py_RETURN_NONE;
    ns_t known = f.busy + f.ready_wait + f.returning + f.awaiting;
    ns_t parts[] = {at_least_0(taken - arrival), at_least_0(first - taken), f.busy, f.ready_wait, 0, 0, f.returning,
                    f.awaiting, at_least_0(written - result), at_least_0(end - written), 0, result - first - known};
    PyObject *numbers[KNOWN_PARTS];
    for (int i = 0; i < KNOWN_PARTS; i++) {
        int unseen = (i == 0 && !r->transport_seen) || (i == 9 && !r->write_seen);
        numbers[i] = unseen ? Py_NewRef(Py_None) : PyLong_FromLongLong(parts[i]);
    }
    PyObject *budget = fill(&budget_shape, numbers, KNOWN_PARTS);
    PyObject *quality = quality_rows(r, parts, arrival - earliest, &f);
    PyObject *values[] = {Py_NewRef(r->id), Py_NewRef(r->kind), Py_NewRef(r->method), Py_NewRef(r->name),
                          Py_NewRef(r->transport), Py_NewRef(r->outcome), or_none_object(r->error),
                          Py_NewRef(r->arrival_ns), Py_NewRef(r->first_step_ns), Py_NewRef(r->result_ns),
                          Py_NewRef(ended), budget, PyLong_FromLongLong(f.steps), PyLong_FromLongLong(f.longest),
                          PyLong_FromLongLong(f.immediate), PyLong_FromLongLong(f.awaits), PyLong_FromLong(0),
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

static PyObject *request_operation(Request *self, void *closure)
{
    PyObject *named = is_set(self->name) && PyObject_IsTrue(self->name) ? self->name : self->method;
    return Py_NewRef(named == NULL ? Py_None : named);
}

#define OBJECT(field) {#field, T_OBJECT, offsetof(Request, field), 0, NULL}
#define FLAG(field) {#field, T_BOOL, offsetof(Request, field), 0, NULL}
static PyMemberDef request_members[] = {
    OBJECT(id), OBJECT(kind), OBJECT(method), OBJECT(name), OBJECT(transport), OBJECT(request_id),
    OBJECT(protocol_version), OBJECT(session), OBJECT(channel), OBJECT(parent), OBJECT(loop), OBJECT(arrival_ns),
    OBJECT(arrival_earliest_ns), OBJECT(taken_ns), OBJECT(first_step_ns), OBJECT(result_ns), OBJECT(write_taken_ns),
    OBJECT(flushed_ns), OBJECT(end_ns), OBJECT(outcome), OBJECT(error), OBJECT(jobs), OBJECT(pauses),
    OBJECT(client_waits), OBJECT(spilled), OBJECT(decode_ns), OBJECT(encode_ns), OBJECT(request_bytes),
    OBJECT(response_bytes), OBJECT(trace_id), OBJECT(span_id), OBJECT(parent_span_id), OBJECT(trace_flags),
    OBJECT(trace_state), OBJECT(server_span), OBJECT(resource_uri), OBJECT(session_id), OBJECT(error_code), FLAG(settles), FLAG(ended), FLAG(transport_seen), FLAG(write_seen), FLAG(partial),
    FLAG(seen_open), {"mark_count", T_INT, offsetof(Request, mark_count), READONLY, NULL}, {"handler", T_LONGLONG, offsetof(Request, handler), 0, NULL},
    {"detached_ns", T_LONGLONG, offsetof(Request, detached_ns), 0, NULL}, {NULL}};
static PyGetSetDef request_getset[] = {{"marks", (getter)request_get_marks, NULL, NULL, NULL},
                                       {"units", (getter)request_get_units, (setter)request_set_units, NULL, NULL},
                                       {"operation", (getter)request_operation, NULL, NULL, NULL},
                                       {NULL}};
static PyMethodDef request_methods[] = {
    {"add_mark", (PyCFunction)request_add_mark, METH_O, NULL},
    {"set_unit", (PyCFunction)request_set_unit, METH_VARARGS, NULL},
    {"drop_unit", (PyCFunction)request_drop_unit, METH_O, NULL},
    {"clear_marks", (PyCFunction)request_clear_marks, METH_NOARGS, NULL},
    {"small_steps", (PyCFunction)request_small_steps, METH_NOARGS, NULL},
    {"fold_single", (PyCFunction)(void (*)(void))request_fold_single, METH_FASTCALL, NULL},
    {"record", (PyCFunction)request_record, METH_O, NULL},
    {NULL}};
static PyType_Slot request_slots[] = {{Py_tp_new, request_new},          {Py_tp_traverse, request_traverse},
                                      {Py_tp_clear, request_clear},      {Py_tp_dealloc, request_dealloc},
                                      {Py_tp_members, request_members},  {Py_tp_getset, request_getset},
                                      {Py_tp_methods, request_methods},  {0, NULL}};
static PyType_Spec request_spec = {"mcp_probe.native._core.Request", sizeof(Request), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, request_slots};

/* ---- Steps: who is on one loop, and its polls (twin: capture/steps.py PythonSteps) ---- */

typedef struct {
    PyObject_HEAD
    PyObject *owner;
    ns_t unit, since, suspended, earliest, ready, now, poll_end, prev_poll_end, steps, ordinal;
    ns_t inherit_earliest, inherit_ready;
    ns_t polls, poll_ns, poll_began, iteration_max;
    unsigned __int128 sum_sq;
    unsigned long thread_id;
    int wake, inherit_wake;
    char alive, stretches, inherits, polling;
    PyObject *readings; /* Readings of this loop's thread, while it is watched */
    unsigned int counts[BUCKETS];
    ns_t sums[BUCKETS];
} Steps;

static void read_at_poll(Steps *self, ns_t now);

/* While every loop has been idle for some ticks the watchdog waits for one of them to begin something. */
static sem_t rouse_watchdog;
static char watchdog_parked;

static inline void rouse(void)
{
    if (__atomic_load_n(&watchdog_parked, __ATOMIC_SEQ_CST) && __atomic_exchange_n(&watchdog_parked, 0, __ATOMIC_SEQ_CST))
        sem_post(&rouse_watchdog);
}

static PyObject *steps_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Steps *self = (Steps *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        self->owner = Py_NewRef(Py_None);
        self->alive = 1;
        self->now = self->poll_end = self->prev_poll_end = now_ns();
        self->suspended = self->earliest = self->ready = self->now;
        self->thread_id = PyThread_get_thread_ident();
    }
    return (PyObject *)self;
}

static int steps_traverse(Steps *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->owner);
    Py_VISIT(self->readings);
    return 0;
}

static int steps_clear(Steps *self)
{
    Py_CLEAR(self->owner);
    Py_CLEAR(self->readings);
    return 0;
}

static void steps_dealloc(Steps *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    steps_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static void set_owner(Steps *self, PyObject *owner)
{
    PyObject *before = self->owner;
    self->owner = Py_NewRef(owner);
    Py_XDECREF(before);
}

static inline Request *as_request(PyObject *owner)
{
    return owner != NULL && PyObject_TypeCheck(owner, request_type) ? (Request *)owner : NULL;
}

static int replace_with_int(PyObject **slot, ns_t value)
{
    PyObject *number = PyLong_FromLongLong(value), *before = *slot;
    if (number == NULL)
        return -1;
    *slot = number;
    Py_XDECREF(before);
    return 0;
}

static int steps_begin(Steps *self, PyObject *owner, ns_t unit, ns_t earliest, ns_t ready, int wake, ns_t since)
{
    if (self->owner != owner)
        set_owner(self, owner);
    self->unit = unit;
    self->since = since;
    rouse();
    self->earliest = earliest;
    self->ready = ready;
    self->wake = wake;
    Request *request = as_request(owner);
    if (request != NULL && !request->ended) {
        unit_t *known = find_unit(request, unit);
        self->suspended = known != NULL ? known->end : earliest;
        if (request->first_step_ns == NULL || request->first_step_ns == Py_None) {
            if (replace_with_int(&request->first_step_ns, since) < 0 || replace_with_int(&request->loop, self->ordinal) < 0)
                return -1;
            request->handler = unit;
        }
    }
    return 0;
}

static int call_with_two(PyObject *self, PyObject *name, PyObject *owner, ns_t since, ns_t now)
{
    PyObject *a = PyLong_FromLongLong(since), *b = PyLong_FromLongLong(now), *result = NULL;
    if (a != NULL && b != NULL)
        result = owner == NULL ? PyObject_CallMethodObjArgs(self, name, a, b, NULL)
                               : PyObject_CallMethodObjArgs(self, name, owner, a, b, NULL);
    Py_XDECREF(a);
    Py_XDECREF(b);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int steps_stretch(Steps *self, ns_t now)
{
    int failed = call_with_two((PyObject *)self, str_keep, Py_None, self->now, now);
    self->now = self->since = now;
    return failed;
}

/* Everything but the plainest case is Python's: nested requests, ends of tasks that settle a request, many marks. */
static int steps_charge(Steps *self, PyObject *owner, ns_t since, ns_t now, int done)
{
    Request *request = as_request(owner);
    if (request != NULL && !request->ended && (request->parent == NULL || request->parent == Py_None) &&
        request->mark_count < MAX_MARKS) {
        if (add_mark(request, self->unit, self->suspended, self->earliest, self->ready, since, now, self->wake) < 0)
            return -1;
        if (!self->unit)
            return 0;
        if (!done)
            return set_unit(request, self->unit, now);
        drop_unit(request, self->unit);
        if (!request->settles || self->unit != request->handler ||
            (request->result_ns != NULL && request->result_ns != Py_None))
            return 0;
        PyObject *at = PyLong_FromLongLong(now), *result = NULL;
        if (at != NULL)
            result = PyObject_CallMethodObjArgs((PyObject *)self, str_settle, owner, at, NULL);
        Py_XDECREF(at);
        Py_XDECREF(result);
        return result == NULL ? -1 : 0;
    }
    PyObject *a = PyLong_FromLongLong(since), *b = PyLong_FromLongLong(now), *result = NULL;
    if (a != NULL && b != NULL)
        result = PyObject_CallMethodObjArgs((PyObject *)self, str_charge, owner, a, b, done ? Py_True : Py_False, NULL);
    Py_XDECREF(a);
    Py_XDECREF(b);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int steps_close(Steps *self, ns_t now, int done)
{
    ns_t since = self->since;
    PyObject *owner = Py_NewRef(self->owner);
    int failed = 0;
    self->now = now;
    if (owner != Py_None)
        failed = steps_charge(self, owner, since, now, done);
    if (!failed && now - since >= RING_NS)
        failed = call_with_two((PyObject *)self, str_keep, owner, since, now);
    self->steps++;
    set_owner(self, Py_None);
    self->since = self->stretches ? now : 0;
    Py_DECREF(owner);
    return failed;
}

static int bucket_of(ns_t value)
{
    if (value < 16)
        return value > 0 ? (int)value : 0;
    int shift = 63 - __builtin_clzll((unsigned long long)value) - 4;
    return (shift << 4) + (int)(value >> shift);
}

static void count_iteration(Steps *self, ns_t length)
{
    if (length <= 0)
        return;
    int bucket = bucket_of(length);
    self->counts[bucket]++;
    self->sums[bucket] += length;
    self->sum_sq += (unsigned __int128)length * length;
    if (length > self->iteration_max)
        self->iteration_max = length;
}

/* A request that began in the middle of a step still owns it, and the step has ended meanwhile. */
static int steps_close_stale(Steps *self, ns_t now)
{
    return self->owner == Py_None || self->owner == NULL ? 0 : steps_close(self, now, 0);
}

static void steps_begin_poll(Steps *self, ns_t now)
{
    count_iteration(self, now - self->poll_end);
    self->polling = 1;
    self->poll_began = self->now = now;
    self->since = 0;
}

static void steps_end_poll(Steps *self, ns_t now)
{
    if (self->polling) {
        self->poll_ns += now - self->poll_began;
        self->polls++;
        self->polling = 0;
    }
    self->prev_poll_end = self->poll_end;
    self->poll_end = self->now = now;
}

static PyObject *steps_take_polls(Steps *self, PyObject *until)
{
    if (until != Py_None && self->polling) {
        ns_t now = PyLong_AsLongLong(until);
        if (now == -1 && PyErr_Occurred())
            return NULL;
        if (now > self->poll_began) {
            self->poll_ns += now - self->poll_began;
            self->poll_began = now;
        }
    }
    PyObject *rows = PyList_New(0);
    for (int i = 0; rows != NULL && i < BUCKETS; i++) {
        if (!self->counts[i])
            continue;
        unsigned int count = self->counts[i]; /* taken before anything is allocated: a collection lets other threads run */
        ns_t sum = self->sums[i];
        self->counts[i] = 0;
        self->sums[i] = 0;
        PyObject *row = Py_BuildValue("(iIL)", i, count, sum);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    if (rows == NULL)
        return NULL;
    ns_t polls = self->polls, poll_ns = self->poll_ns, longest = self->iteration_max;
    unsigned __int128 sum_sq = self->sum_sq;
    self->polls = self->poll_ns = self->iteration_max = 0;
    self->sum_sq = 0;
    return Py_BuildValue("(LLNKKL)", polls, poll_ns, rows, (unsigned long long)(sum_sq >> 64),
                         (unsigned long long)sum_sq, longest);
}

static PyObject *none_unless(int failed)
{
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *steps_py_begin(Steps *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "begin(owner, unit, earliest, ready, wake, since)");
        return NULL;
    }
    ns_t unit = PyLong_AsLongLong(args[1]), earliest = PyLong_AsLongLong(args[2]), ready = PyLong_AsLongLong(args[3]),
         since = PyLong_AsLongLong(args[5]);
    long wake = PyLong_AsLong(args[4]);
    if (PyErr_Occurred())
        return NULL;
    return none_unless(steps_begin(self, args[0], unit, earliest, ready, (int)wake, since));
}

static PyObject *steps_py_close(Steps *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "close(now, done)");
        return NULL;
    }
    ns_t now = PyLong_AsLongLong(args[0]);
    if (PyErr_Occurred())
        return NULL;
    return none_unless(steps_close(self, now, PyObject_IsTrue(args[1])));
}

static PyObject *steps_py_stretch(Steps *self, PyObject *at)
{
    ns_t now = PyLong_AsLongLong(at);
    if (now == -1 && PyErr_Occurred())
        return NULL;
    return none_unless(steps_stretch(self, now));
}

static PyObject *steps_py_split(Steps *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "split(owner, now)");
        return NULL;
    }
    ns_t now = PyLong_AsLongLong(args[1]), unit = self->unit;
    if (PyErr_Occurred())
        return NULL;
    int failed = 0;
    if (self->owner != Py_None || (self->since && !self->stretches))
        failed = steps_close(self, now, 0) < 0;
    else if (self->stretches && now - self->now >= RING_NS)
        failed = steps_stretch(self, now) < 0;
    return none_unless(failed || steps_begin(self, args[0], unit, now, now, WAKE_SPLIT, now) < 0);
}

static PyObject *steps_py_begin_poll(Steps *self, PyObject *at)
{
    ns_t now = PyLong_AsLongLong(at);
    if (now == -1 && PyErr_Occurred())
        return NULL;
    steps_begin_poll(self, now);
    Py_RETURN_NONE;
}

static PyObject *steps_py_end_poll(Steps *self, PyObject *at)
{
    ns_t now = PyLong_AsLongLong(at);
    if (now == -1 && PyErr_Occurred())
        return NULL;
    steps_end_poll(self, now);
    Py_RETURN_NONE;
}

static PyObject *steps_get_inherit(Steps *self, void *closure)
{
    if (!self->inherits)
        Py_RETURN_NONE;
    return Py_BuildValue("(LLi)", self->inherit_earliest, self->inherit_ready, self->inherit_wake);
}

static int steps_set_inherit(Steps *self, PyObject *value, void *closure)
{
    if (value == NULL || value == Py_None) {
        self->inherits = 0;
        return 0;
    }
    ns_t earliest, ready;
    int wake;
    if (!PyArg_ParseTuple(value, "LLi", &earliest, &ready, &wake))
        return -1;
    self->inherit_earliest = earliest;
    self->inherit_ready = ready;
    self->inherit_wake = wake;
    self->inherits = 1;
    return 0;
}

#define NUMBER(field) {#field, T_LONGLONG, offsetof(Steps, field), 0, NULL}
static PyMemberDef steps_members[] = {
    {"owner", T_OBJECT, offsetof(Steps, owner), 0, NULL}, NUMBER(unit), NUMBER(since), NUMBER(suspended),
    NUMBER(earliest), NUMBER(ready), NUMBER(now), NUMBER(poll_end), NUMBER(prev_poll_end), NUMBER(steps),
    NUMBER(ordinal), {"wake", T_INT, offsetof(Steps, wake), 0, NULL}, {"alive", T_BOOL, offsetof(Steps, alive), 0, NULL},
    {"stretches", T_BOOL, offsetof(Steps, stretches), 0, NULL},
    {"polling", T_BOOL, offsetof(Steps, polling), READONLY, NULL},
    {"thread_id", T_ULONG, offsetof(Steps, thread_id), READONLY, NULL}, {NULL}};
static PyGetSetDef steps_getset[] = {{"inherit", (getter)steps_get_inherit, (setter)steps_set_inherit, NULL, NULL},
                                     {NULL}};
static PyMethodDef steps_methods[] = {
    {"begin", (PyCFunction)(void (*)(void))steps_py_begin, METH_FASTCALL, NULL},
    {"close", (PyCFunction)(void (*)(void))steps_py_close, METH_FASTCALL, NULL},
    {"stretch", (PyCFunction)steps_py_stretch, METH_O, NULL},
    {"split", (PyCFunction)(void (*)(void))steps_py_split, METH_FASTCALL, NULL},
    {"begin_poll", (PyCFunction)steps_py_begin_poll, METH_O, NULL},
    {"end_poll", (PyCFunction)steps_py_end_poll, METH_O, NULL},
    {"take_poll_counts", (PyCFunction)steps_take_polls, METH_O, NULL},
    {NULL}};
static PyType_Slot steps_slots[] = {{Py_tp_new, steps_new},         {Py_tp_traverse, steps_traverse},
                                    {Py_tp_clear, steps_clear},     {Py_tp_dealloc, steps_dealloc},
                                    {Py_tp_members, steps_members}, {Py_tp_getset, steps_getset},
                                    {Py_tp_methods, steps_methods}, {0, NULL}};
static PyType_Spec steps_spec = {"mcp_probe.native._core.Steps", sizeof(Steps), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, steps_slots};

/* A fault of ours: tell Track.broken. -1 where it is none, such as a Ctrl-C that came while Python ran for us. */
static int give_up(Steps *steps)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value != NULL && traceback != NULL)
        PyException_SetTraceback(value, traceback);
    steps->alive = 0;
    PyObject *broken = PyObject_GetAttr((PyObject *)steps, str_broken), *result = NULL;
    if (broken != NULL && value != NULL)
        result = PyObject_CallFunctionObjArgs(broken, value, NULL);
    PyErr_Clear();
    Py_XDECREF(broken);
    Py_XDECREF(result);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return 0;
}

/* ---- Handle: a callback in a loop's queue, with the instant it became ready ---- */

typedef struct {
    PyObject_HEAD
    PyObject *callback, *args, *loop, *context, *source_traceback, *repr, *cancelled;
    PyObject *weaklist;
    Steps *steps;
    ns_t earliest, ready;
    int wake;
    char inherited;
} Handle;

/* What the Python side has found out about this interpreter (see configure). */
static PyObject *current_var, *step_type, *wakeup_type, *task_type, *function_type, *handle_class, *handle_run_original, *deque_append,
    *report_exception, *describe_handle;

static int handle_traverse(Handle *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->callback);
    Py_VISIT(self->args);
    Py_VISIT(self->loop);
    Py_VISIT(self->context);
    Py_VISIT(self->source_traceback);
    Py_VISIT(self->repr);
    Py_VISIT((PyObject *)self->steps);
    return 0;
}

static int handle_clear(Handle *self)
{
    Py_CLEAR(self->callback);
    Py_CLEAR(self->args);
    Py_CLEAR(self->loop);
    Py_CLEAR(self->context);
    Py_CLEAR(self->source_traceback);
    Py_CLEAR(self->repr);
    Py_CLEAR(self->cancelled);
    Py_CLEAR(self->steps);
    return 0;
}

static void handle_dealloc(Handle *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weaklist != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    handle_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* Steals args and context. */
static Handle *handle_make(PyObject *callback, PyObject *args, PyObject *loop, PyObject *context, Steps *steps)
{
    Handle *self = PyObject_GC_New(Handle, handle_type);
    if (self == NULL) {
        Py_DECREF(args);
        Py_DECREF(context);
        return NULL;
    }
    self->callback = Py_NewRef(callback);
    self->args = args;
    self->loop = Py_NewRef(loop);
    self->context = context;
    self->source_traceback = Py_NewRef(Py_None);
    self->repr = Py_NewRef(Py_None);
    self->cancelled = Py_NewRef(Py_False);
    self->weaklist = NULL;
    self->steps = (Steps *)Py_NewRef((PyObject *)steps);
    if (steps->inherits) {
        self->earliest = steps->inherit_earliest;
        self->ready = steps->inherit_ready;
        self->wake = steps->inherit_wake;
        self->inherited = 1;
    }
    else {
        self->earliest = self->ready = now_ns();
        self->wake = WAKE_LOOP;
        self->inherited = 0;
    }
    PyObject_GC_Track(self);
    return self;
}

/* The task whose step the callback is: a new reference, NULL where it is none (no exception set). */
static PyObject *task_of(Handle *self)
{
    PyObject *kind = (PyObject *)Py_TYPE(self->callback);
    if (kind == step_type && kind != wakeup_type) {
        PyObject *task = PyObject_GetAttr(self->callback, str_self);
        if (task == NULL)
            PyErr_Clear();
        return task;
    }
    if (kind == wakeup_type && self->args != NULL && PyTuple_Check(self->args) && PyTuple_Size(self->args)) {
        PyObject *task = PyObject_GetAttr(self->callback, str_self);
        if (task == NULL) {
            PyErr_Clear();
            return NULL;
        }
        if (!PyObject_TypeCheck(task, (PyTypeObject *)task_type))
            Py_CLEAR(task);
        return task;
    }
    return NULL;
}

static PyObject *call_back(Handle *self)
{
    PyObject *callback = Py_NewRef(self->callback), *args = Py_NewRef(self->args), *result;
    Py_ssize_t count = PyTuple_Check(args) ? PyTuple_Size(args) : -1;
    if (count == 0)
        result = PyObject_CallFunctionObjArgs(callback, NULL);
    else if (count == 1)
        result = PyObject_CallFunctionObjArgs(callback, PyTuple_GetItem(args, 0), NULL);
    else if (count < 0)
        result = PyObject_CallFunctionObjArgs(callback, NULL); /* cancelled meanwhile: None is not callable */
    else
        result = PyObject_Call(callback, args, NULL);
    Py_DECREF(callback);
    Py_DECREF(args);
    return result;
}

/* What events.Handle._run does with an exception of the callback: the loop's exception handler, or further up. */
static PyObject *handle_failed(Handle *self)
{
    if (PyErr_ExceptionMatches(PyExc_SystemExit) || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        return NULL;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    PyObject *outer[3]; /* a handler may ask sys.exc_info(): it is the exception being handled */
    PyErr_GetExcInfo(&outer[0], &outer[1], &outer[2]);
    PyErr_SetExcInfo(type, Py_XNewRef(value), traceback);
    PyObject *result = PyObject_CallFunctionObjArgs(report_exception, (PyObject *)self, value, NULL);
    PyErr_SetExcInfo(outer[0], outer[1], outer[2]);
    Py_XDECREF(value);
    return result;
}

/* A request's answer is out, and this is clean-up that no task does: not worth a mark. */
static int is_clean_up(Handle *self, Request *request)
{
    return request->result_ns != NULL && request->result_ns != Py_None &&
           (PyObject *)Py_TYPE(self->callback) == function_type;
}

/* Whose callback it is: a new reference or NULL; -1 with an exception set. `inside`: in the handle's own context. */
static int owner_of(Handle *self, int inside, PyObject **owner)
{
    if (inside)
        return PyContextVar_Get(current_var, NULL, owner);
    *owner = PyObject_CallMethod(self->context, "get", "O", current_var);
    return *owner == NULL ? -1 : 0;
}

static PyObject *handle_run(Handle *self, PyObject *ignored)
{
    if (self->context == NULL || self->callback == NULL || self->args == NULL || self->steps == NULL)
        Py_RETURN_NONE; /* the collector has taken it apart */
    PyObject *run = PyObject_GetAttr(handle_class, str_run);
    if (run == NULL)
        return NULL;
    int wrapped = run != handle_run_original; /* somebody has wrapped it since: that runs in our place, and enters the context */
    PyObject *context = Py_NewRef(self->context);
    if (!wrapped && PyContext_Enter(context) < 0) {
        Py_DECREF(run);
        Py_DECREF(context);
        return handle_failed(self);
    }
    Steps *steps = (Steps *)Py_NewRef((PyObject *)self->steps);
    PyObject *task = NULL, *owner = NULL, *result = NULL;
    int followed = 0, seen = steps->alive, stopped = 0;
    if (seen) {
        ns_t now = now_ns();
        if (now - steps->now >= RING_NS && steps_stretch(steps, now) < 0)
            stopped = give_up(steps);
        if (!stopped && owner_of(self, !wrapped, &owner) < 0)
            stopped = give_up(steps);
        Request *request = as_request(owner);
        if (!stopped && steps->alive && (self->inherited || (request != NULL && !is_clean_up(self, request)))) {
            task = task_of(self);
            if (task == NULL) {
                steps->inherit_earliest = self->earliest;
                steps->inherit_ready = self->ready;
                steps->inherit_wake = self->wake;
                steps->inherits = 1;
            }
            if (steps_begin(steps, owner == NULL ? Py_None : owner, (ns_t)(Py_ssize_t)task, self->earliest, self->ready,
                            self->wake, now) < 0)
                stopped = give_up(steps);
            followed = 1;
        }
    }
    if (!stopped)
        result = wrapped ? PyObject_CallFunctionObjArgs(run, (PyObject *)self, NULL) : call_back(self);
    PyObject *type = NULL, *value = NULL, *traceback = NULL;
    if (!stopped && result == NULL)
        PyErr_Fetch(&type, &value, &traceback);
    if (!stopped && seen && steps->alive) {
        ns_t now = now_ns();
        int failed = 0;
        if (followed) {
            int done = 0;
            steps->inherits = 0;
            if (task != NULL && steps->owner != Py_None) {
                PyObject *answer = PyObject_CallMethodObjArgs(task, str_done, NULL);
                done = answer == NULL ? -1 : PyObject_IsTrue(answer);
                Py_XDECREF(answer);
            }
            failed = done < 0 || steps_close(steps, now, done) < 0;
        }
        else if (steps->owner != Py_None)
            failed = steps_close(steps, now, 0) < 0; /* a request began in the middle of this step */
        else if (now - steps->now >= RING_NS)
            failed = steps_stretch(steps, now) < 0;
        else
            steps->now = steps->since = now;
        if (failed)
            stopped = give_up(steps);
    }
    if (stopped) {
        Py_CLEAR(result);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
    else if (result == NULL)
        PyErr_Restore(type, value, traceback);
    if (!wrapped && PyContext_Exit(context) < 0)
        Py_CLEAR(result);
    Py_DECREF(run);
    Py_DECREF(context);
    Py_DECREF(steps);
    Py_XDECREF(task);
    Py_XDECREF(owner);
    return result == NULL && !wrapped && !stopped ? handle_failed(self) : result;
}

static PyObject *handle_cancel(Handle *self, PyObject *ignored)
{
    if (self->cancelled != Py_True) {
        PyObject *cancelled = self->cancelled;
        self->cancelled = Py_NewRef(Py_True); /* first, as asyncio does: its repr says so */
        Py_XDECREF(cancelled);
        PyObject *debug = PyObject_CallMethod(self->loop, "get_debug", NULL);
        if (debug == NULL)
            return NULL;
        int described = PyObject_IsTrue(debug);
        Py_DECREF(debug);
        if (described > 0) {
            PyObject *repr = PyObject_Repr((PyObject *)self), *before = self->repr;
            if (repr == NULL)
                return NULL;
            self->repr = repr;
            Py_XDECREF(before);
        }
        PyObject *callback = self->callback, *args = self->args;
        self->callback = Py_NewRef(Py_None);
        self->args = Py_NewRef(Py_None);
        Py_XDECREF(callback);
        Py_XDECREF(args);
    }
    Py_RETURN_NONE;
}

static PyObject *handle_is_cancelled(Handle *self, PyObject *ignored)
{
    return Py_NewRef(self->cancelled == NULL ? Py_True : self->cancelled);
}

static PyObject *handle_get_context(Handle *self, PyObject *ignored)
{
    return Py_NewRef(self->context == NULL ? Py_None : self->context);
}

static PyObject *handle_repr(PyObject *self)
{
    return PyObject_CallFunctionObjArgs(describe_handle, self, NULL);
}

static PyObject *handle_get_class(PyObject *self, void *closure)
{
    return Py_NewRef(handle_class); /* isinstance(handle, asyncio.Handle) must hold */
}

#define SLOT(name, field) {name, T_OBJECT_EX, offsetof(Handle, field), 0, NULL}
static PyMemberDef handle_members[] = {SLOT("_callback", callback),
                                       SLOT("_args", args),
                                       SLOT("_loop", loop),
                                       SLOT("_context", context),
                                       SLOT("_source_traceback", source_traceback),
                                       SLOT("_repr", repr),
                                       SLOT("_cancelled", cancelled),
                                       {"__weaklistoffset__", T_PYSSIZET, offsetof(Handle, weaklist), READONLY, NULL},
                                       {NULL}};
static PyGetSetDef handle_getset[] = {{"__class__", handle_get_class, NULL, NULL, NULL}, {NULL}};
static PyMethodDef handle_methods[] = {{"_run", (PyCFunction)handle_run, METH_NOARGS, NULL},
                                       {"cancel", (PyCFunction)handle_cancel, METH_NOARGS, NULL},
                                       {"cancelled", (PyCFunction)handle_is_cancelled, METH_NOARGS, NULL},
                                       {"get_context", (PyCFunction)handle_get_context, METH_NOARGS, NULL},
                                       {NULL}};
static PyType_Slot handle_slots[] = {{Py_tp_traverse, handle_traverse}, {Py_tp_clear, handle_clear},
                                     {Py_tp_dealloc, handle_dealloc},   {Py_tp_members, handle_members},
                                     {Py_tp_getset, handle_getset},     {Py_tp_methods, handle_methods},
                                     {Py_tp_repr, handle_repr},         {0, NULL}};
static PyType_Spec handle_spec = {"mcp_probe.native._core.Handle", sizeof(Handle), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  handle_slots};

/* ---- SocketReady: a socket's handle in the queue, ready since between two polls (twin: asyncio_loop.py) ---- */

typedef struct {
    PyObject_HEAD
    PyObject *handle;
    Steps *steps;
} SocketReady;

static int socket_traverse(SocketReady *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->handle);
    Py_VISIT((PyObject *)self->steps);
    return 0;
}

static int socket_clear(SocketReady *self)
{
    Py_CLEAR(self->handle);
    Py_CLEAR(self->steps);
    return 0;
}

static void socket_dealloc(SocketReady *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    socket_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static int socket_begin(SocketReady *self)
{
    Steps *steps = self->steps;
    ns_t now = now_ns();
    PyObject *context = PyObject_GetAttr(self->handle, str__context), *owner = NULL;
    if (context != NULL)
        owner = PyObject_CallMethodObjArgs(context, str_get, current_var, NULL);
    Py_XDECREF(context);
    if (owner == NULL)
        return -1;
    steps->inherit_earliest = steps->prev_poll_end;
    steps->inherit_ready = steps->poll_end;
    steps->inherit_wake = WAKE_SOCKET;
    steps->inherits = 1;
    int failed = steps_close_stale(steps, now) < 0 || (now - steps->now >= RING_NS && steps_stretch(steps, now) < 0);
    if (!failed)
        failed = steps_begin(steps, owner, 0, steps->prev_poll_end, steps->poll_end, WAKE_SOCKET, now) < 0;
    Py_DECREF(owner);
    return failed ? -1 : 0;
}

static PyObject *socket_run(SocketReady *self, PyObject *ignored)
{
    Steps *steps = (Steps *)Py_NewRef((PyObject *)self->steps);
    PyObject *handle = Py_NewRef(self->handle);
    int seen = steps->alive;
    int stopped = seen && socket_begin(self) < 0 ? give_up(steps) : 0;
    PyObject *result = stopped ? NULL : PyObject_CallMethodObjArgs(handle, str_run, NULL);
    if (!stopped && seen && steps->alive) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        steps->inherits = 0;
        if (steps_close(steps, now_ns(), 0) < 0 && give_up(steps) < 0) {
            Py_CLEAR(result);
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(traceback);
        }
        else
            PyErr_Restore(type, value, traceback);
    }
    Py_DECREF(handle);
    Py_DECREF(steps);
    return result;
}

static PyObject *socket_getattro(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear(); /* asyncio's debug mode looks at more of a handle than at _run */
    return PyObject_GetAttr(((SocketReady *)self)->handle, name);
}

static PyObject *socket_repr(PyObject *self)
{
    return PyObject_Repr(((SocketReady *)self)->handle);
}

static PyObject *socket_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *handle, *steps;
    if (!PyArg_ParseTuple(args, "OO!", &handle, steps_type, &steps))
        return NULL;
    SocketReady *self = (SocketReady *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->handle = Py_NewRef(handle);
    self->steps = (Steps *)Py_NewRef(steps);
    return (PyObject *)self;
}

static PyMethodDef socket_methods[] = {{"_run", (PyCFunction)socket_run, METH_NOARGS, NULL}, {NULL}};
static PyType_Slot socket_slots[] = {{Py_tp_new, socket_new},           {Py_tp_traverse, socket_traverse},
                                     {Py_tp_clear, socket_clear},       {Py_tp_dealloc, socket_dealloc},
                                     {Py_tp_methods, socket_methods},   {Py_tp_getattro, socket_getattro},
                                     {Py_tp_repr, socket_repr},         {0, NULL}};
static PyType_Spec socket_spec = {"mcp_probe.native._core.SocketReady", sizeof(SocketReady), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, socket_slots};

/* ---- Schedule: BaseEventLoop.call_soon and call_soon_threadsafe (twin: the functions it replaces) ---- */

typedef struct {
    PyObject_HEAD
    vectorcall_t vectorcall;
    PyObject *original, *loop; /* the loop followed last; a strong reference, dropped by forget() */
    PyObject *tracks;          /* dict: loop -> Steps */
    Steps *steps;
    PyObject *name;
    char from_thread;
} Schedule;

static int schedule_traverse(Schedule *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->original);
    Py_VISIT(self->loop);
    Py_VISIT(self->tracks);
    Py_VISIT((PyObject *)self->steps);
    Py_VISIT(self->name);
    return 0;
}

static int schedule_clear(Schedule *self)
{
    Py_CLEAR(self->original);
    Py_CLEAR(self->loop);
    Py_CLEAR(self->tracks);
    Py_CLEAR(self->steps);
    Py_CLEAR(self->name);
    return 0;
}

static void schedule_dealloc(Schedule *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    schedule_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *pass_on(PyObject *original, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *positional = PyTuple_New(nargs), *keywords = NULL, *result = NULL;
    if (positional == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < nargs; i++)
        PyTuple_SetItem(positional, i, Py_NewRef(args[i]));
    if (kwnames != NULL && PyTuple_Size(kwnames)) {
        keywords = PyDict_New();
        for (Py_ssize_t i = 0; keywords != NULL && i < PyTuple_Size(kwnames); i++)
            if (PyDict_SetItem(keywords, PyTuple_GetItem(kwnames, i), args[nargs + i]) < 0)
                Py_CLEAR(keywords);
        if (keywords == NULL) {
            Py_DECREF(positional);
            return NULL;
        }
    }
    result = PyObject_Call(original, positional, keywords);
    Py_DECREF(positional);
    Py_XDECREF(keywords);
    return result;
}

/* 1: a plain loop, open and not in debug mode. 0: no, or not to be told (the original then says what is wrong). */
static int is_plain(PyObject *loop)
{
    PyObject *closed = PyObject_GetAttr(loop, str_closed), *debug = PyObject_GetAttr(loop, str_debug);
    int plain = closed == Py_False && debug == Py_False;
    Py_XDECREF(closed);
    Py_XDECREF(debug);
    PyErr_Clear();
    return plain;
}

/* A new reference, as another thread may make us forget; NULL where the loop is not followed. */
static Steps *follow(Schedule *self, PyObject *loop)
{
    if (self->loop == loop)
        return (Steps *)Py_NewRef((PyObject *)self->steps);
    PyObject *steps = PyDict_GetItemWithError(self->tracks, loop);
    if (steps == NULL || !PyObject_TypeCheck(steps, steps_type)) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *before = self->loop, *old = (PyObject *)self->steps;
    Py_INCREF(steps);
    self->loop = Py_NewRef(loop);
    self->steps = (Steps *)Py_NewRef(steps);
    Py_XDECREF(before);
    Py_XDECREF(old);
    return (Steps *)steps;
}

static PyObject *schedule_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Schedule *self = (Schedule *)callable;
    Py_ssize_t nargs = NARGS(nargsf), keywords = kwnames == NULL ? 0 : PyTuple_Size(kwnames);
    PyObject *context = NULL;
    Steps *steps = nargs >= 2 ? follow(self, args[0]) : NULL;
    int known = steps != NULL && steps->alive;
    if (known && keywords) {
        if (keywords == 1 && PyUnicode_Compare(PyTuple_GetItem(kwnames, 0), str_context) == 0)
            context = args[nargs] == Py_None ? NULL : args[nargs];
        else
            known = 0;
        if (context != NULL && Py_TYPE(context) != &PyContext_Type)
            known = 0; /* asyncio only calls its run() */
    }
    if (!known || !is_plain(args[0])) {
        Py_XDECREF((PyObject *)steps);
        return pass_on(self->original, args, nargs, kwnames);
    }
    PyObject *loop = args[0];
    context = context != NULL ? Py_NewRef(context) : PyContext_CopyCurrent();
    PyObject *rest = nargs == 2 ? Py_NewRef(empty_tuple) : PyTuple_New(nargs - 2);
    if (context == NULL || rest == NULL) {
        Py_XDECREF(context);
        Py_XDECREF(rest);
        Py_DECREF(steps);
        return NULL;
    }
    for (Py_ssize_t i = 2; i < nargs; i++)
        PyTuple_SetItem(rest, i - 2, Py_NewRef(args[i]));
    Handle *handle = handle_make(args[1], rest, loop, context, steps);
    PyObject *queue = handle == NULL ? NULL : PyObject_GetAttr(loop, str_ready);
    PyObject *done = NULL;
    if (queue != NULL) {
        if (self->from_thread && PyThread_get_thread_ident() != steps->thread_id) {
            /* The loop's thread may be inside a callback of its own, but that is not what wakes us. */
            handle->earliest = handle->ready = now_ns();
            handle->wake = WAKE_THREAD;
            handle->inherited = 1;
        }
        done = PyObject_CallFunctionObjArgs(deque_append, queue, (PyObject *)handle, NULL);
        if (done == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) { /* a queue of the loop's own kind */
            PyErr_Clear();
            done = PyObject_CallMethod(queue, "append", "O", (PyObject *)handle);
        }
    }
    Py_XDECREF(queue);
    Py_DECREF(steps);
    if (done != NULL && self->from_thread) {
        Py_DECREF(done);
        done = PyObject_CallMethodObjArgs(loop, str_write_to_self, NULL);
    }
    if (done == NULL) {
        Py_XDECREF((PyObject *)handle);
        return NULL;
    }
    Py_DECREF(done);
    return (PyObject *)handle;
}

static PyObject *schedule_get(PyObject *self, PyObject *instance, PyObject *owner)
{
    if (instance == NULL || instance == Py_None)
        return Py_NewRef(self);
    return PyMethod_New(self, instance);
}

static PyObject *schedule_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *original, *tracks, *name;
    int from_thread;
    if (!PyArg_ParseTuple(args, "OOUp", &original, &tracks, &name, &from_thread))
        return NULL;
    Schedule *self = (Schedule *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = schedule_call;
    self->original = Py_NewRef(original);
    self->tracks = Py_NewRef(tracks);
    self->name = Py_NewRef(name);
    self->from_thread = (char)from_thread;
    return (PyObject *)self;
}

static PyObject *schedule_forget(Schedule *self, PyObject *ignored)
{
    Py_CLEAR(self->loop);
    Py_CLEAR(self->steps);
    Py_RETURN_NONE;
}

static PyMemberDef schedule_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Schedule, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(Schedule, original), READONLY, NULL},
    {"__name__", T_OBJECT, offsetof(Schedule, name), READONLY, NULL},
    {"__qualname__", T_OBJECT, offsetof(Schedule, name), READONLY, NULL},
    {NULL}};
static PyMethodDef schedule_methods[] = {{"forget", (PyCFunction)schedule_forget, METH_NOARGS, NULL}, {NULL}};
static PyType_Slot schedule_slots[] = {{Py_tp_new, schedule_new},
                                       {Py_tp_call, PyVectorcall_Call},
                                       {Py_tp_descr_get, schedule_get},
                                       {Py_tp_traverse, schedule_traverse},
                                       {Py_tp_clear, schedule_clear},
                                       {Py_tp_dealloc, schedule_dealloc},
                                       {Py_tp_members, schedule_members},
                                       {Py_tp_methods, schedule_methods},
                                       {0, NULL}};
static PyType_Spec schedule_spec = {"mcp_probe.native._core.Schedule", sizeof(Schedule), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL |
                                        Py_TPFLAGS_METHOD_DESCRIPTOR,
                                    schedule_slots};

/* ---- Poll: EpollSelector.select, with its two instants (twin: asyncio_loop.py noted_select) ---- */

typedef struct {
    PyObject_HEAD
    vectorcall_t vectorcall;
    PyObject *original, *epoll, *keys;
    Steps *steps;
} Poll;

static int poll_traverse(Poll *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->original);
    Py_VISIT(self->epoll);
    Py_VISIT(self->keys);
    Py_VISIT((PyObject *)self->steps);
    return 0;
}

static int poll_clear(Poll *self)
{
    Py_CLEAR(self->original);
    Py_CLEAR(self->epoll);
    Py_CLEAR(self->keys);
    Py_CLEAR(self->steps);
    return 0;
}

static void poll_dealloc(Poll *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    poll_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

#define POLLIN_BIT 1UL  /* select.EPOLLIN */
#define POLLOUT_BIT 4UL /* select.EPOLLOUT */

/* [(key, mask), …] of the events that have a key. */
static PyObject *ready_keys(Poll *self, PyObject *events)
{
    PyObject *found = PyList_New(0);
    Py_ssize_t count = found == NULL ? 0 : PyList_Size(events);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *event = PyList_GetItem(events, i);
        PyObject *key = PyDict_GetItemWithError(self->keys, PyTuple_GetItem(event, 0));
        if (key == NULL) {
            if (PyErr_Occurred())
                goto fail;
            continue;
        }
        unsigned long bits = PyLong_AsUnsignedLong(PyTuple_GetItem(event, 1));
        long wanted = PyLong_AsLong(PyTuple_GetItem(key, 2)); /* SelectorKey(fileobj, fd, events, data) */
        if (PyErr_Occurred())
            goto fail;
        long mask = ((bits & ~POLLIN_BIT) ? 2 : 0) | ((bits & ~POLLOUT_BIT) ? 1 : 0);
        PyObject *row = Py_BuildValue("(Ol)", key, mask & wanted);
        if (row == NULL || PyList_Append(found, row) < 0) {
            Py_XDECREF(row);
            goto fail;
        }
        Py_DECREF(row);
    }
    return found;
fail:
    Py_XDECREF(found);
    return NULL;
}

static PyObject *poll_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Poll *self = (Poll *)callable;
    Py_ssize_t nargs = NARGS(nargsf);
    Steps *steps = self->steps;
    if (nargs > 1 || (kwnames != NULL && PyTuple_Size(kwnames)) || !steps->alive)
        return pass_on(self->original, args, nargs, kwnames);
    double timeout = -1.0;
    if (nargs == 1 && args[0] != Py_None) {
        timeout = PyFloat_AsDouble(args[0]);
        if (timeout == -1.0 && PyErr_Occurred())
            return NULL;
        timeout = timeout <= 0 ? 0.0 : ceil(timeout * 1e3) * 1e-3;
    }
    Py_INCREF(steps);
    ns_t began = now_ns();
    if (began - steps->now >= RING_NS && steps_stretch(steps, began) < 0 && give_up(steps) < 0) {
        Py_DECREF(steps);
        return NULL;
    }
    steps_begin_poll(steps, began);
    Py_ssize_t room = PyDict_Size(self->keys);
    PyObject *seconds = PyFloat_FromDouble(timeout), *most = PyLong_FromSsize_t(room < 1 ? 1 : room), *events = NULL;
    if (seconds != NULL && most != NULL)
        events = PyObject_CallFunctionObjArgs(self->epoll, seconds, most, NULL);
    Py_XDECREF(seconds);
    Py_XDECREF(most);
    PyObject *found = NULL;
    if (events == NULL && PyErr_ExceptionMatches(PyExc_InterruptedError)) {
        PyErr_Clear();
        found = PyList_New(0);
    }
    else if (events != NULL)
        found = ready_keys(self, events);
    Py_XDECREF(events);
    if (steps->alive) {
        ns_t ended = now_ns();
        steps_end_poll(steps, ended);
        read_at_poll(steps, ended);
        steps->since = ended;
        rouse();
    }
    Py_DECREF(steps);
    return found;
}

static PyObject *poll_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *steps, *original, *epoll, *keys;
    if (!PyArg_ParseTuple(args, "O!OOO!", steps_type, &steps, &original, &epoll, &PyDict_Type, &keys))
        return NULL;
    Poll *self = (Poll *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = poll_call;
    self->steps = (Steps *)Py_NewRef(steps);
    self->original = Py_NewRef(original);
    self->epoll = Py_NewRef(epoll);
    self->keys = Py_NewRef(keys);
    return (PyObject *)self;
}

static PyMemberDef poll_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Poll, vectorcall), READONLY, NULL},
                                     {"__wrapped__", T_OBJECT, offsetof(Poll, original), READONLY, NULL},
                                     {NULL}};
static PyType_Slot poll_slots[] = {{Py_tp_new, poll_new},           {Py_tp_call, PyVectorcall_Call},
                                   {Py_tp_traverse, poll_traverse}, {Py_tp_clear, poll_clear},
                                   {Py_tp_dealloc, poll_dealloc},   {Py_tp_members, poll_members},
                                   {0, NULL}};
static PyType_Spec poll_spec = {"mcp_probe.native._core.Poll", sizeof(Poll), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL, poll_slots};

/* ---- Desk and Channel: live requests, and one stream pair of a server (twins: capture/queueing.py) ---- */

/* What capture/queueing.py knows of messages (see messages). */
static PyObject *kinds, *kind_request, *kind_notification, *kind_result, *kind_error, *named_methods, *exchange_var,
    *raw_request_class, *find_kind, *find_name, *note_error, *note_result;
static long long max_live;
static Py_ssize_t max_name;

typedef struct {
    PyObject_HEAD
    PyObject *live;
    ns_t number, peak, unwritten, unwritten_peak, unclaimed, overflow;
    char closed;
} Desk;

static PyTypeObject *desk_type;

static PyObject *desk_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Desk *self = (Desk *)PyType_GenericAlloc(type, 0);
    if (self != NULL && (self->live = PyDict_New()) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int desk_traverse(Desk *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->live);
    return 0;
}

static int desk_clear(Desk *self)
{
    Py_CLEAR(self->live);
    return 0;
}

static void desk_dealloc(Desk *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    desk_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *capped(PyObject *text, Py_ssize_t most)
{
    Py_ssize_t length = PyUnicode_Check(text) ? PyUnicode_GetLength(text) : 0;
    return length > most ? PyUnicode_Substring(text, 0, most) : Py_NewRef(text);
}

static Request *desk_open(Desk *self, PyObject *kind, PyObject *method, PyObject *name, PyObject *transport)
{
    PyObject *number = PyLong_FromLongLong(++self->number), *short_method = capped(method, max_name), *made = NULL;
    if (number != NULL && short_method != NULL)
        made = PyObject_CallFunctionObjArgs(raw_request_class, number, kind, short_method, name, transport, NULL);
    if (made != NULL) {
        if (PyDict_Size(self->live) >= max_live)
            self->overflow++;
        else if (PyDict_SetItem(self->live, number, made) < 0)
            Py_CLEAR(made);
    }
    Py_XDECREF(number);
    Py_XDECREF(short_method);
    return (Request *)made;
}

static int desk_finished(Desk *self, Request *raw, ns_t now)
{
    if (is_set(raw->result_ns))
        return 0;
    if (replace_with_int(&raw->result_ns, now) < 0)
        return -1;
    if (raw->write_seen && ++self->unwritten > self->unwritten_peak)
        self->unwritten_peak = self->unwritten;
    return 0;
}

static int call_one(PyObject *target, PyObject *name, PyObject *arg)
{
    PyObject *done = PyObject_CallMethodObjArgs(target, name, arg, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int desk_end(Desk *self, Request *raw, ns_t now, PyObject *outcome)
{
    if (raw->ended)
        return 0;
    raw->ended = 1;
    int failed = replace_with_int(&raw->end_ns, now) < 0;
    if (outcome != NULL && outcome != Py_None) {
        PyObject *before = raw->outcome;
        raw->outcome = Py_NewRef(outcome);
        Py_XDECREF(before);
    }
    if (!is_set(raw->result_ns)) {
        if (is_set(raw->channel))
            failed |= call_one(raw->channel, str_forget, (PyObject *)raw) < 0;
    }
    else if (raw->write_seen)
        self->unwritten--;
    if (!failed && PyDict_DelItem(self->live, raw->id) < 0) {
        if (PyErr_ExceptionMatches(PyExc_KeyError))
            PyErr_Clear();
        else
            failed = 1;
    }
    if (failed)
        return -1;
    if (is_set(raw->session)) {
        PyObject *session = Py_NewRef(raw->session);
        failed = call_one(session, str_finish, (PyObject *)raw) < 0;
        Py_DECREF(session);
        return failed ? -1 : 0;
    }
    self->unclaimed++;
    return 0;
}

static Request *request_arg(PyObject *object)
{
    Request *request = as_request(object);
    if (request == NULL)
        PyErr_Format(PyExc_TypeError, "expected a request, not %R", object);
    return request;
}

static PyObject *desk_py_open(Desk *self, PyObject *args)
{
    PyObject *kind, *method, *name, *transport;
    if (!PyArg_ParseTuple(args, "OOOO", &kind, &method, &name, &transport))
        return NULL;
    return (PyObject *)desk_open(self, kind, method, name, transport);
}

static PyObject *desk_py_finished(Desk *self, PyObject *args)
{
    PyObject *object;
    ns_t now;
    Request *raw;
    if (!PyArg_ParseTuple(args, "OL", &object, &now) || (raw = request_arg(object)) == NULL)
        return NULL;
    return none_unless(desk_finished(self, raw, now));
}

static PyObject *desk_py_end(Desk *self, PyObject *args)
{
    PyObject *object, *outcome = NULL;
    ns_t now;
    Request *raw;
    if (!PyArg_ParseTuple(args, "OL|O", &object, &now, &outcome) || (raw = request_arg(object)) == NULL)
        return NULL;
    return none_unless(desk_end(self, raw, now, outcome));
}

static PyObject *desk_note_peak(Desk *self, PyObject *unread)
{
    ns_t outstanding = PyLong_AsLongLong(unread) + PyDict_Size(self->live);
    if (PyErr_Occurred())
        return NULL;
    if (outstanding > self->peak)
        self->peak = outstanding;
    Py_RETURN_NONE;
}

#define COUNT(field) {#field, T_LONGLONG, offsetof(Desk, field), 0, NULL}
static PyMemberDef desk_members[] = {{"live", T_OBJECT, offsetof(Desk, live), READONLY, NULL}, COUNT(peak),
                                     COUNT(unwritten), COUNT(unwritten_peak), COUNT(unclaimed), COUNT(overflow),
                                     {"number", T_LONGLONG, offsetof(Desk, number), READONLY, NULL}, {"closed", T_BOOL, offsetof(Desk, closed), 0, NULL}, {NULL}};
static PyMethodDef desk_methods[] = {{"open", (PyCFunction)desk_py_open, METH_VARARGS, NULL},
                                     {"finished", (PyCFunction)desk_py_finished, METH_VARARGS, NULL},
                                     {"end", (PyCFunction)desk_py_end, METH_VARARGS, NULL},
                                     {"note_peak", (PyCFunction)desk_note_peak, METH_O, NULL},
                                     {NULL}};
static PyType_Slot desk_slots[] = {{Py_tp_new, desk_new},         {Py_tp_traverse, desk_traverse},
                                   {Py_tp_clear, desk_clear},     {Py_tp_dealloc, desk_dealloc},
                                   {Py_tp_members, desk_members}, {Py_tp_methods, desk_methods},
                                   {0, NULL}};
static PyType_Spec desk_spec = {"mcp_probe.native._core.Desk", sizeof(Desk), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, desk_slots};

typedef struct {
    PyObject_HEAD
    Desk *desk;
    PyObject *transport, *session, *stamps, *pending, *sent, *writing, *ready;
    Steps *steps;
    char writer_seen;
} Channel;

static PyObject *channel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *desk, *transport, *ready;
    if (!PyArg_ParseTuple(args, "O!OO", desk_type, &desk, &transport, &ready))
        return NULL;
    Channel *self = (Channel *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->desk = (Desk *)Py_NewRef(desk);
    self->transport = Py_NewRef(transport);
    self->ready = Py_NewRef(ready);
    self->pending = PyDict_New();
    self->sent = PyDict_New();
    if (self->pending == NULL || self->sent == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int channel_traverse(Channel *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)self->desk);
    Py_VISIT(self->transport);
    Py_VISIT(self->session);
    Py_VISIT(self->stamps);
    Py_VISIT(self->pending);
    Py_VISIT(self->sent);
    Py_VISIT(self->writing);
    Py_VISIT(self->ready);
    Py_VISIT((PyObject *)self->steps);
    return 0;
}

static int channel_clear(Channel *self)
{
    Py_CLEAR(self->desk);
    Py_CLEAR(self->transport);
    Py_CLEAR(self->session);
    Py_CLEAR(self->stamps);
    Py_CLEAR(self->pending);
    Py_CLEAR(self->sent);
    Py_CLEAR(self->writing);
    Py_CLEAR(self->ready);
    Py_CLEAR(self->steps);
    return 0;
}

static void channel_dealloc(Channel *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    channel_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* The message of an item and its kind; both new references. The message is NULL where the item has none. */
static int message_of(PyObject *item, PyObject **message, PyObject **kind)
{
    *kind = NULL;
    *message = PyObject_GetAttr(item, str_message);
    if (*message == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    PyObject *known = PyDict_GetItemWithError(kinds, (PyObject *)Py_TYPE(*message));
    if (known != NULL)
        *kind = Py_NewRef(known);
    else if (!PyErr_Occurred())
        *kind = PyObject_CallFunctionObjArgs(find_kind, *message, NULL);
    if (*kind == NULL) {
        Py_CLEAR(*message);
        return -1;
    }
    return 0;
}

/* Tool or prompt name, a new reference; None for other methods. */
static PyObject *name_of(PyObject *message, PyObject *method)
{
    int named = PySet_Contains(named_methods, method);
    if (named <= 0) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    PyObject *params = PyObject_GetAttr(message, str_params), *name = NULL;
    if (params == NULL)
        return NULL;
    if (PyDict_CheckExact(params)) {
        PyObject *given = PyDict_GetItemWithError(params, str_name);
        if (given != NULL || !PyErr_Occurred())
            name = given != NULL && PyUnicode_Check(given) ? capped(given, max_name) : Py_NewRef(Py_None);
    }
    else
        name = PyObject_CallFunctionObjArgs(find_name, method, params, NULL);
    Py_DECREF(params);
    return name;
}

/* (earliest, ready, since) of the step that runs now. */
static int running_step(Channel *self, ns_t now, ns_t *ready, ns_t *since)
{
    Steps *steps = self->steps;
    if (steps != NULL && steps->alive && steps->thread_id == PyThread_get_thread_ident()) {
        *ready = steps->since ? steps->ready : now;
        *since = steps->since ? steps->since : now;
        return 0;
    }
    ns_t earliest;
    PyObject *found = PyObject_CallFunctionObjArgs(self->ready, NULL);
    int failed = found == NULL || !PyArg_ParseTuple(found, "LLL", &earliest, ready, since);
    Py_XDECREF(found);
    return failed ? -1 : 0;
}

static int set_current(PyObject *context, PyObject *raw)
{
    if (PyContext_Enter(context) < 0)
        return -1;
    PyObject *token = PyContextVar_Set(current_var, raw);
    Py_XDECREF(token);
    int failed = PyContext_Exit(context) < 0;
    return token == NULL || failed ? -1 : 0;
}

static int note_arrival(Channel *self, Request *raw, PyObject *context, ns_t now)
{
    PyObject *stamp = NULL;
    if (is_set(self->stamps)) {
        stamp = PyObject_CallMethodObjArgs(self->stamps, str_consumed, NULL);
        if (stamp == NULL)
            return -1;
    }
    if (stamp != NULL && stamp != Py_None) {
        ns_t ready, since, arrival = PyLong_AsLongLong(PyTuple_GetItem(stamp, 0));
        int failed = PyErr_Occurred() || running_step(self, now, &ready, &since) < 0;
        if (!failed) {
            raw->arrival_ns = Py_NewRef(PyTuple_GetItem(stamp, 0));
            raw->arrival_earliest_ns = Py_NewRef(PyTuple_GetItem(stamp, 1));
            raw->request_bytes = Py_NewRef(PyTuple_GetItem(stamp, 2));
            failed = replace_with_int(&raw->decode_ns, now - (since > arrival ? since : arrival)) < 0;
        }
        Py_DECREF(stamp);
        return failed ? -1 : 0;
    }
    Py_XDECREF(stamp);
    if (context != Py_None) {
        PyObject *exchange = PyObject_CallMethodObjArgs(context, str_get, exchange_var, NULL), *taken = NULL;
        if (exchange == NULL)
            return -1;
        int arrived = 0;
        if (exchange != Py_None) {
            taken = PyObject_CallMethodObjArgs((PyObject *)self, str_arrived_by, exchange, (PyObject *)raw, NULL);
            arrived = taken == NULL ? -1 : PyObject_IsTrue(taken);
            Py_XDECREF(taken);
        }
        Py_DECREF(exchange);
        if (arrived)
            return arrived < 0 ? -1 : 0;
    }
    raw->transport_seen = 0;
    return replace_with_int(&raw->arrival_ns, now);
}

static int admit(Channel *self, PyObject *message, PyObject *kind, PyObject *context)
{
    int failed = -1;
    Request *raw = NULL;
    PyObject *method = PyObject_GetAttr(message, str_method), *name = NULL, *id = NULL;
    if (method == NULL || (name = name_of(message, method)) == NULL)
        goto done;
    raw = desk_open(self->desk, kind, method, name, self->transport);
    if (raw == NULL)
        goto done;
    ns_t now = now_ns();
    raw->session = Py_NewRef(self->session == NULL ? Py_None : self->session);
    raw->channel = Py_NewRef((PyObject *)self);
    raw->settles = 1;
    if (replace_with_int(&raw->taken_ns, now) < 0 || note_arrival(self, raw, context, now) < 0)
        goto done;
    if (context != Py_None && set_current(context, (PyObject *)raw) < 0)
        goto done;
    if (kind == kind_request) {
        if ((id = PyObject_GetAttr(message, str_id)) == NULL)
            goto done;
        raw->request_id = Py_NewRef(id);
        if (PyDict_SetItem(self->pending, id, (PyObject *)raw) < 0)
            goto done;
        if (self->writer_seen)
            raw->write_seen = 1;
    }
    ns_t outstanding = PyDict_Size(self->desk->live);
    if (is_set(self->stamps)) {
        PyObject *waiting = PyObject_GetAttr(self->stamps, str_waiting);
        if (waiting == NULL)
            goto done;
        outstanding += PyObject_Size(waiting);
        Py_DECREF(waiting);
    }
    if (outstanding > self->desk->peak)
        self->desk->peak = outstanding;
    failed = 0;
done:
    Py_XDECREF(method);
    Py_XDECREF(name);
    Py_XDECREF(id);
    Py_XDECREF((PyObject *)raw);
    return failed;
}

static PyObject *channel_received(Channel *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "received(item, context)");
        return NULL;
    }
    PyObject *message, *kind;
    if (message_of(args[0], &message, &kind) < 0)
        return NULL;
    int failed = 0;
    if (kind == kind_request || kind == kind_notification)
        failed = admit(self, message, kind, args[1]) < 0;
    else {
        if (is_set(self->stamps)) { /* the line is consumed, whatever it was */
            PyObject *stamp = PyObject_CallMethodObjArgs(self->stamps, str_consumed, NULL);
            failed = stamp == NULL;
            Py_XDECREF(stamp);
        }
        if (message != NULL && !failed)
            failed = call_one((PyObject *)self, str_answered, message) < 0;
    }
    int admitted = kind == kind_request || kind == kind_notification;
    Py_XDECREF(message);
    Py_XDECREF(kind);
    if (failed)
        return NULL;
    return Py_NewRef(admitted ? args[1] : Py_None);
}

/* Reads off an answer whether it failed; never keeps anything of its content. */
static int note_answer(Request *raw, PyObject *message, PyObject *kind)
{
    PyObject *part = NULL, *done = NULL;
    if (kind == kind_error) {
        if ((part = PyObject_GetAttr(message, str_error)) != NULL)
            done = PyObject_CallFunctionObjArgs(note_error, (PyObject *)raw, part, NULL);
    }
    else {
        int named = PySet_Contains(named_methods, raw->method);
        if (named <= 0) {
            PyErr_Clear();
            return 0;
        }
        if ((part = PyObject_GetAttr(message, str_result)) != NULL) {
            PyObject *failed = PyDict_CheckExact(part) ? PyDict_GetItemWithError(part, str_is_error) : Py_True;
            if (failed == NULL && PyErr_Occurred())
                done = NULL;
            else if (failed != Py_True)
                done = Py_NewRef(Py_None);
            else
                done = PyObject_CallFunctionObjArgs(note_result, (PyObject *)raw, part, NULL);
        }
    }
    Py_XDECREF(part);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *channel_sending(Channel *self, PyObject *item)
{
    PyObject *message, *kind, *id = NULL, *found = NULL;
    if (message_of(item, &message, &kind) < 0)
        return NULL;
    int failed = 0;
    if (kind == kind_result || kind == kind_error) {
        id = PyObject_GetAttr(message, str_id);
        found = id == NULL ? NULL : PyDict_GetItemWithError(self->pending, id);
        failed = found == NULL && PyErr_Occurred();
        Py_XINCREF(found);
        if (found != NULL)
            failed = PyDict_DelItem(self->pending, id) < 0;
        Request *raw = as_request(found);
        if (!failed && raw != NULL && !raw->ended) {
            failed = note_answer(raw, message, kind) < 0 || desk_finished(self->desk, raw, now_ns()) < 0;
            if (!failed && self->writer_seen) {
                PyObject *key = PyLong_FromVoidPtr(item);
                failed = key == NULL || PyDict_SetItem(self->sent, key, found) < 0;
                Py_XDECREF(key);
            }
        }
        else
            Py_CLEAR(found);
    }
    else if (kind == kind_request)
        failed = call_one((PyObject *)self, str_asking, message) < 0;
    Py_XDECREF(message);
    Py_XDECREF(kind);
    Py_XDECREF(id);
    if (failed) {
        Py_XDECREF(found);
        return NULL;
    }
    return found == NULL ? Py_NewRef(Py_None) : found;
}

static PyObject *channel_handed_over(Channel *self, PyObject *object)
{
    Request *raw = request_arg(object);
    if (raw == NULL)
        return NULL;
    if (raw->write_seen)
        Py_RETURN_NONE;
    ns_t ready, since, taken = is_set(raw->result_ns) ? PyLong_AsLongLong(raw->result_ns) : 0;
    if (PyErr_Occurred() || running_step(self, now_ns(), &ready, &since) < 0)
        return NULL;
    if (ready > taken)
        taken = ready;
    if (replace_with_int(&raw->write_taken_ns, taken) < 0)
        return NULL;
    return none_unless(desk_end(self->desk, raw, taken, NULL));
}

/* The request of a message that is on its way to the writer; a new reference, NULL without an exception: none. */
static PyObject *pop_sent(Channel *self, PyObject *item)
{
    PyObject *key = PyLong_FromVoidPtr(item);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(self->sent, key);
    Py_XINCREF(found);
    if (found != NULL && PyDict_DelItem(self->sent, key) < 0)
        Py_CLEAR(found);
    Py_XDECREF(key);
    return found;
}

static PyObject *channel_not_sent(Channel *self, PyObject *args)
{
    PyObject *item, *object;
    if (!PyArg_ParseTuple(args, "OO", &item, &object))
        return NULL;
    Request *raw = request_arg(object);
    PyObject *was_sent = raw == NULL ? NULL : pop_sent(self, item);
    if (PyErr_Occurred())
        return NULL;
    int ends = was_sent != NULL || !raw->write_seen;
    Py_XDECREF(was_sent);
    return none_unless(ends && desk_end(self->desk, raw, now_ns(), cancelled_outcome) < 0);
}

static PyObject *channel_taken(Channel *self, PyObject *item)
{
    ns_t now = now_ns();
    PyObject *taken = pop_sent(self, item);
    if (taken == NULL && PyErr_Occurred())
        return NULL;
    PyObject *previous = self->writing;
    self->writing = taken == NULL ? Py_NewRef(Py_None) : taken;
    Request *before = as_request(previous), *raw = as_request(taken);
    int failed = before != NULL && desk_end(self->desk, before, now, NULL) < 0;
    Py_XDECREF(previous);
    if (!failed && raw != NULL)
        failed = replace_with_int(&raw->write_taken_ns, now) < 0;
    return none_unless(failed);
}

static int channel_flush(Channel *self)
{
    PyObject *writing = self->writing;
    self->writing = Py_NewRef(Py_None);
    Request *raw = as_request(writing);
    int failed = 0;
    if (raw != NULL) {
        ns_t now = now_ns();
        failed = replace_with_int(&raw->flushed_ns, now) < 0 || desk_end(self->desk, raw, now, NULL) < 0;
    }
    Py_XDECREF(writing);
    return failed ? -1 : 0;
}

static PyObject *channel_flushed(Channel *self, PyObject *ignored)
{
    return none_unless(channel_flush(self) < 0);
}

static PyObject *channel_forget(Channel *self, PyObject *object)
{
    Request *raw = request_arg(object);
    if (raw == NULL)
        return NULL;
    PyObject *id = raw->request_id == NULL ? Py_None : raw->request_id;
    PyObject *found = PyDict_GetItemWithError(self->pending, id);
    if (found == object && PyDict_DelItem(self->pending, id) < 0)
        return NULL;
    if (found == NULL && PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyMemberDef channel_members[] = {
    {"desk", T_OBJECT, offsetof(Channel, desk), READONLY, NULL},
    {"transport", T_OBJECT, offsetof(Channel, transport), 0, NULL},
    {"session", T_OBJECT, offsetof(Channel, session), 0, NULL},
    {"stamps", T_OBJECT, offsetof(Channel, stamps), 0, NULL},
    {"pending", T_OBJECT, offsetof(Channel, pending), READONLY, NULL},
    {"sent", T_OBJECT, offsetof(Channel, sent), READONLY, NULL},
    {"writing", T_OBJECT, offsetof(Channel, writing), 0, NULL},
    {"writer_seen", T_BOOL, offsetof(Channel, writer_seen), 0, NULL},
    {NULL}};

static int channel_set_track(Channel *self, PyObject *track, void *closure)
{
    PyObject *before = (PyObject *)self->steps;
    if (track != NULL && track != Py_None && !PyObject_TypeCheck(track, steps_type)) {
        PyErr_SetString(PyExc_TypeError, "a channel's track is a Steps");
        return -1;
    }
    self->steps = track == NULL || track == Py_None ? NULL : (Steps *)Py_NewRef(track);
    Py_XDECREF(before);
    return 0;
}

static PyObject *channel_get_track(Channel *self, void *closure)
{
    return Py_NewRef(self->steps == NULL ? Py_None : (PyObject *)self->steps);
}

static PyGetSetDef channel_getset[] = {{"track", (getter)channel_get_track, (setter)channel_set_track, NULL, NULL},
                                       {NULL}};
static PyMethodDef channel_methods[] = {
    {"received", (PyCFunction)(void (*)(void))channel_received, METH_FASTCALL, NULL},
    {"sending", (PyCFunction)channel_sending, METH_O, NULL},
    {"handed_over", (PyCFunction)channel_handed_over, METH_O, NULL},
    {"not_sent", (PyCFunction)channel_not_sent, METH_VARARGS, NULL},
    {"taken", (PyCFunction)channel_taken, METH_O, NULL},
    {"flushed", (PyCFunction)channel_flushed, METH_NOARGS, NULL},
    {"forget", (PyCFunction)channel_forget, METH_O, NULL},
    {NULL}};
static PyType_Slot channel_slots[] = {{Py_tp_new, channel_new},         {Py_tp_traverse, channel_traverse},
                                      {Py_tp_clear, channel_clear},     {Py_tp_dealloc, channel_dealloc},
                                      {Py_tp_members, channel_members}, {Py_tp_getset, channel_getset},
                                      {Py_tp_methods, channel_methods}, {0, NULL}};
static PyType_Spec channel_spec = {"mcp_probe.native._core.Channel", sizeof(Channel), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, channel_slots};

/* ---- TransportCall: readline, write or flush of the stdio transport (twin: capture/transport.py) ---- */

enum { READ = 0, WRITE = 1, FLUSH = 2 };
enum { TRANSPORT_START = 6, TRANSPORT_FINISH = 7, TRANSPORT_JOB = 8 }; /* capture/executor.py */

typedef struct {
    PyObject_HEAD
    vectorcall_t vectorcall;
    PyObject *original, *channel, *fail, *pool, *append;
    ns_t submitted;
    int kind;
    char alive;
} TransportCall;

static int transport_traverse(TransportCall *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->original);
    Py_VISIT(self->channel);
    Py_VISIT(self->fail);
    Py_VISIT(self->pool);
    Py_VISIT(self->append);
    return 0;
}

static int transport_clear(TransportCall *self)
{
    Py_CLEAR(self->original);
    Py_CLEAR(self->channel);
    Py_CLEAR(self->fail);
    Py_CLEAR(self->pool);
    Py_CLEAR(self->append);
    return 0;
}

static void transport_dealloc(TransportCall *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    transport_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static void transport_broken(TransportCall *self)
{
    PyObject *type, *value, *traceback, *result = NULL;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value != NULL && traceback != NULL)
        PyException_SetTraceback(value, traceback);
    self->alive = 0;
    if (value != NULL)
        result = PyObject_CallFunctionObjArgs(self->fail, value, NULL);
    PyErr_Clear();
    Py_XDECREF(result);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

/* Steals transition. */
static int append_transition(TransportCall *self, PyObject *transition)
{
    PyObject *append = Py_NewRef(self->append);
    PyObject *done = transition == NULL ? NULL : PyObject_CallFunctionObjArgs(append, transition, NULL);
    Py_DECREF(append);
    Py_XDECREF(transition);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *transport_submit(TransportCall *self, PyObject *ignored)
{
    if (!self->alive)
        Py_RETURN_NONE;
    self->submitted = now_ns();
    if (self->kind == WRITE) {
        PyObject *writing = PyObject_GetAttr(self->channel, str_writing);
        Request *request = as_request(writing);
        if (writing == NULL)
            transport_broken(self);
        else if (request != NULL && !is_set(request->encode_ns) && is_set(request->write_taken_ns)) {
            ns_t taken = PyLong_AsLongLong(request->write_taken_ns);
            if (PyErr_Occurred() || replace_with_int(&request->encode_ns, self->submitted - taken) < 0)
                transport_broken(self);
        }
        Py_XDECREF(writing);
    }
    Py_RETURN_NONE;
}

static int transport_ended(TransportCall *self, ns_t start, ns_t wait, ns_t now)
{
    if (!is_set(self->append))
        return 0;
    if (self->kind == READ)
        return append_transition(self, Py_BuildValue("(LiOi)", now, TRANSPORT_FINISH, self->pool, 0));
    return append_transition(self, Py_BuildValue("(LiO(LL))", now, TRANSPORT_JOB, self->pool, start, wait));
}

static int transport_returned(TransportCall *self, PyObject *result)
{
    if (self->kind == WRITE) {
        PyObject *writing = PyObject_GetAttr(self->channel, str_writing);
        Request *request = as_request(writing);
        if (request != NULL) {
            PyObject *before = request->response_bytes;
            request->response_bytes = Py_NewRef(result);
            Py_XDECREF(before);
        }
        Py_XDECREF(writing);
        return writing == NULL ? -1 : 0;
    }
    if (self->kind == FLUSH) {
        PyObject *done = PyObject_CallMethodObjArgs(self->channel, str_flushed, NULL);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    return 0;
}

static PyObject *transport_invoke(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    TransportCall *self = (TransportCall *)callable;
    Py_ssize_t nargs = NARGS(nargsf);
    if (!self->alive)
        return pass_on(self->original, args, nargs, kwnames);
    ns_t submitted = self->submitted, start = now_ns();
    self->submitted = 0;
    if (submitted && self->kind == READ && is_set(self->append) && /* it may wait for ever */
        append_transition(self, Py_BuildValue("(LiOL)", start, TRANSPORT_START, self->pool, start - submitted)) < 0)
        transport_broken(self);
    PyObject *result = pass_on(self->original, args, nargs, kwnames), *type, *value, *traceback;
    if (!self->alive)
        return result;
    PyErr_Fetch(&type, &value, &traceback);
    if (submitted && transport_ended(self, start, start - submitted, now_ns()) < 0)
        transport_broken(self);
    if (result != NULL && self->alive && transport_returned(self, result) < 0)
        transport_broken(self);
    PyErr_Restore(type, value, traceback);
    return result;
}

static PyObject *transport_new(PyTypeObject *cls, PyObject *args, PyObject *kwargs)
{
    PyObject *original, *channel, *fail;
    int kind;
    if (!PyArg_ParseTuple(args, "iOOO", &kind, &original, &channel, &fail))
        return NULL;
    TransportCall *self = (TransportCall *)PyType_GenericAlloc(cls, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = transport_invoke;
    self->kind = kind;
    self->alive = 1;
    self->original = Py_NewRef(original);
    self->channel = Py_NewRef(channel);
    self->fail = Py_NewRef(fail);
    return (PyObject *)self;
}

static PyMemberDef transport_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(TransportCall, vectorcall), READONLY, NULL},
    {"original", T_OBJECT, offsetof(TransportCall, original), READONLY, NULL},
    {"channel", T_OBJECT, offsetof(TransportCall, channel), READONLY, NULL},
    {"pool", T_OBJECT, offsetof(TransportCall, pool), 0, NULL},
    {"append", T_OBJECT, offsetof(TransportCall, append), 0, NULL},
    {"kind", T_INT, offsetof(TransportCall, kind), READONLY, NULL},
    {"submitted_ns", T_LONGLONG, offsetof(TransportCall, submitted), 0, NULL},
    {"alive", T_BOOL, offsetof(TransportCall, alive), 0, NULL},
    {NULL}};
static PyMethodDef transport_methods[] = {{"submit", (PyCFunction)transport_submit, METH_NOARGS, NULL}, {NULL}};
static PyType_Slot transport_slots[] = {{Py_tp_new, transport_new},           {Py_tp_call, PyVectorcall_Call},
                                        {Py_tp_traverse, transport_traverse}, {Py_tp_clear, transport_clear},
                                        {Py_tp_dealloc, transport_dealloc},   {Py_tp_members, transport_members},
                                        {Py_tp_methods, transport_methods},   {0, NULL}};
static PyType_Spec transport_spec = {"mcp_probe.native._core.TransportCall", sizeof(TransportCall), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL, transport_slots};

/* ---- Readings: the clocks of one loop's thread, read tick by tick (twin: capture/readings.py) ---- */

#define READINGS 64
#define BASELINE_NS 5000000LL

typedef struct {
    ns_t at, cpu, queued, slices, process; /* queued and slices: -1 where the platform cannot tell */
} reading_t;

typedef struct {
    PyObject_HEAD
    Steps *steps;
    int schedstat; /* a descriptor, closed with this object, or -1 */
    int has_clock;
    clockid_t clock;
    ns_t last;
    char closed; /* whoever dozes over it is to come back */
    char lock; /* the watchdog writes without the GIL, and at a slow step's end the loop's thread does too */
    unsigned int next;
    reading_t ring[READINGS];
} Readings;

static int readings_traverse(Readings *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)self->steps);
    return 0;
}

static int readings_clear(Readings *self)
{
    Py_CLEAR(self->steps);
    return 0;
}

static void readings_dealloc(Readings *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    readings_clear(self);
    if (self->schedstat >= 0)
        close(self->schedstat); /* not before: the watchdog reads it without the GIL */
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static ns_t clock_ns(clockid_t clock)
{
    struct timespec at;
    return clock_gettime(clock, &at) ? -1 : (ns_t)at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void lock_ring(Readings *self)
{
    while (__atomic_test_and_set(&self->lock, __ATOMIC_ACQUIRE))
        sched_yield(); /* held for the copy of one reading */
}

static void unlock_ring(Readings *self)
{
    __atomic_clear(&self->lock, __ATOMIC_RELEASE);
}

/* Needs no GIL. */
static reading_t take_reading(Readings *self, ns_t now)
{
    reading_t reading = {now, -1, -1, -1, clock_ns(CLOCK_PROCESS_CPUTIME_ID)};
    char text[96];
    if (self->has_clock)
        reading.cpu = clock_ns(self->clock);
    ssize_t size = self->schedstat < 0 ? -1 : pread(self->schedstat, text, sizeof(text) - 1, 0);
    if (size > 0) {
        long long ran, queued, slices;
        text[size] = 0;
        if (sscanf(text, "%lld %lld %lld", &ran, &queued, &slices) == 3) {
            reading.queued = queued;
            reading.slices = slices;
        }
    }
    lock_ring(self);
    self->ring[self->next++ % READINGS] = reading;
    self->last = now;
    unlock_ring(self);
    return reading;
}

static PyObject *or_none(ns_t value)
{
    if (value < 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(value);
}

static PyObject *reading_tuple(const reading_t *r)
{
    return Py_BuildValue("(LNNNL)", r->at, or_none(r->cpu), or_none(r->queued), or_none(r->slices), r->process);
}

static PyObject *readings_read(Readings *self, PyObject *at)
{
    ns_t now = PyLong_AsLongLong(at);
    if (now == -1 && PyErr_Occurred())
        return NULL;
    reading_t reading = take_reading(self, now);
    return reading_tuple(&reading);
}

static PyObject *readings_before(Readings *self, PyObject *at)
{
    ns_t until = PyLong_AsLongLong(at);
    if (until == -1 && PyErr_Occurred())
        return NULL;
    reading_t found = {0};
    int known = 0;
    lock_ring(self);
    for (unsigned int i = 1; !known && i <= READINGS && i <= self->next; i++) {
        found = self->ring[(self->next - i) % READINGS];
        known = found.at <= until;
    }
    unlock_ring(self);
    if (known)
        return reading_tuple(&found);
    Py_RETURN_NONE;
}

static PyObject *readings_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *steps, *clock;
    int schedstat;
    if (!PyArg_ParseTuple(args, "O!Oi", steps_type, &steps, &clock, &schedstat))
        return NULL;
    long number = clock == Py_None ? 0 : PyLong_AsLong(clock);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    Readings *self = (Readings *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->steps = (Steps *)Py_NewRef(steps);
    self->schedstat = schedstat;
    self->has_clock = clock != Py_None;
    self->clock = (clockid_t)number;
    keep(&self->steps->readings, (PyObject *)self);
    return (PyObject *)self;
}

/* The loop is no longer watched. */
static PyObject *readings_close(Readings *self, PyObject *ignored)
{
    if (self->steps != NULL && self->steps->readings == (PyObject *)self)
        Py_CLEAR(self->steps->readings);
    Py_RETURN_NONE;
}

/* A baseline at the beginning of a loop iteration, unless there is a fresh one. */
static void read_at_poll(Steps *steps, ns_t now)
{
    Readings *readings = (Readings *)steps->readings;
    if (readings != NULL && now - readings->last >= BASELINE_NS)
        take_reading(readings, now);
}

static PyTypeObject *readings_type;
static PyMethodDef readings_methods[] = {{"read", (PyCFunction)readings_read, METH_O, NULL},
                                         {"before", (PyCFunction)readings_before, METH_O, NULL},
                                         {"close", (PyCFunction)readings_close, METH_NOARGS, NULL},
                                         {NULL}};
static PyMemberDef readings_members[] = {{"closed", T_BOOL, offsetof(Readings, closed), 0, NULL}, {NULL}};
static PyType_Slot readings_slots[] = {{Py_tp_new, readings_new},           {Py_tp_traverse, readings_traverse},
                                       {Py_tp_clear, readings_clear},       {Py_tp_dealloc, readings_dealloc},
                                       {Py_tp_methods, readings_methods},   {Py_tp_members, readings_members},   {0, NULL}};
static PyType_Spec readings_spec = {"mcp_probe.native._core.Readings", sizeof(Readings), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, readings_slots};

#define MAX_WATCHED 16
#define LEAST_SLEEP_NS 200000LL
#define IDLE_TICKS 5
#define PARK_NS 900000000L

/* One tick over all watched loops, without the GIL: what it reads of Steps are single words that one thread writes.
 * Returns 0 where a step is over the limit or a loop is no longer watched, else how long no step can be. */
static ns_t tick(Readings **watched, int count, ns_t limit)
{
    ns_t wait = limit;
    for (int i = 0; i < count; i++) {
        if (__atomic_load_n(&watched[i]->closed, __ATOMIC_RELAXED))
            return 0;
        ns_t since = __atomic_load_n(&watched[i]->steps->since, __ATOMIC_RELAXED), age = now_ns() - since;
        if (since == 0)
            continue;
        if (age >= limit)
            return 0;
        if (limit - age < wait)
            wait = limit - age;
    }
    return wait;
}

static int all_idle(Readings **watched, int count)
{
    for (int i = 0; i < count; i++)
        if (__atomic_load_n(&watched[i]->steps->since, __ATOMIC_SEQ_CST) || __atomic_load_n(&watched[i]->closed, __ATOMIC_SEQ_CST))
            return 0;
    return 1;
}

/* Wait until a loop begins something, or for PARK_NS. */
static void park(Readings **watched, int count)
{
    while (sem_trywait(&rouse_watchdog) == 0)
        ; /* of an earlier wait that had ended by itself */
    __atomic_store_n(&watchdog_parked, 1, __ATOMIC_SEQ_CST);
    if (all_idle(watched, count)) { /* else it began before it could have seen us parked */
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PARK_NS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        sem_timedwait(&rouse_watchdog, &until);
    }
    __atomic_store_n(&watchdog_parked, 0, __ATOMIC_SEQ_CST);
}

static PyObject *core_rouse(PyObject *module, PyObject *ignored)
{
    rouse();
    Py_RETURN_NONE;
}

static PyObject *core_doze(PyObject *module, PyObject *args)
{
    PyObject *list;
    ns_t limit, wait, most_ns;
    if (!PyArg_ParseTuple(args, "O!LLL", &PyTuple_Type, &list, &limit, &wait, &most_ns))
        return NULL;
    Readings *watched[MAX_WATCHED];
    int count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(list) && count < MAX_WATCHED; i++) {
        PyObject *one = PyTuple_GetItem(list, i);
        if (!PyObject_TypeCheck(one, readings_type)) {
            PyErr_SetString(PyExc_TypeError, "doze() takes a tuple of Readings");
            return NULL;
        }
        watched[count++] = (Readings *)one; /* the tuple holds them */
    }
    Py_BEGIN_ALLOW_THREADS
    ns_t until = now_ns() + most_ns;
    int idle_ticks = 0;
    do {
        ns_t left = until - now_ns(); /* the limit may be an hour */
        wait = wait < left ? wait : left > 0 ? left : 0;
        struct timespec pause = {wait / 1000000000LL, wait % 1000000000LL};
        nanosleep(&pause, NULL);
        wait = tick(watched, count, limit);
        if (wait > 0 && wait < LEAST_SLEEP_NS)
            wait = LEAST_SLEEP_NS;
        idle_ticks = all_idle(watched, count) ? idle_ticks + 1 : 0;
        if (idle_ticks >= IDLE_TICKS && wait > 0) {
            park(watched, count);
            idle_ticks = 0;
            wait = tick(watched, count, limit);
        }
    } while (wait > 0 && now_ns() < until);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(wait == 0);
}

/* ---- the module ---- */

static PyObject *core_now(PyObject *module, PyObject *ignored)
{
    return PyLong_FromLongLong(now_ns());
}

static PyObject *core_configure(PyObject *module, PyObject *args)
{
    PyObject *var, *step, *wakeup, *task, *function, *handle, *run, *append, *report, *describe;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOO", &var, &step, &wakeup, &task, &function, &handle, &run, &append, &report,
                          &describe))
        return NULL;
    if (!PyType_Check(step) || !PyType_Check(wakeup) || !PyType_Check(task)) {
        PyErr_SetString(PyExc_TypeError, "configure() takes types for step, wakeup and task");
        return NULL;
    }
    keep(&current_var, var);
    keep(&step_type, step);
    keep(&wakeup_type, wakeup);
    keep(&task_type, task);
    keep(&function_type, function);
    keep(&handle_class, handle);
    keep(&handle_run_original, run);
    keep(&deque_append, append);
    keep(&report_exception, report);
    keep(&describe_handle, describe);
    Py_RETURN_NONE;
}

static PyObject *core_messages(PyObject *module, PyObject *args)
{
    PyObject *known, *request, *notification, *result, *error, *named, *current, *exchange, *cls, *kind, *name, *failure,
        *answer;
    if (!PyArg_ParseTuple(args, "O!OOOOOOOOOOOOLn", &PyDict_Type, &known, &request, &notification, &result, &error,
                          &named, &current, &exchange, &cls, &kind, &name, &failure, &answer, &max_live, &max_name))
        return NULL;
    keep(&current_var, current); /* an asyncio that is not known to us never gets as far as configure() */
    keep(&kinds, known);
    keep(&kind_request, request);
    keep(&kind_notification, notification);
    keep(&kind_result, result);
    keep(&kind_error, error);
    keep(&named_methods, named);
    keep(&exchange_var, exchange);
    keep(&raw_request_class, cls);
    keep(&find_kind, kind);
    keep(&find_name, name);
    keep(&note_error, failure);
    keep(&note_result, answer);
    Py_RETURN_NONE;
}

static int take_shape(shape_t *shape, PyObject *type, PyObject *rows)
{
    Py_ssize_t count = PyList_Check(rows) ? PyList_Size(rows) : -1;
    if (!PyType_Check(type) || count < 0 || count > MAX_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "a shape is a class and a list of (name, default)");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name, *value;
        if (!PyArg_ParseTuple(PyList_GetItem(rows, i), "UO", &name, &value))
            return -1;
        keep(&shape->names[i], name);
        keep(&shape->defaults[i], value);
    }
    shape->count = (int)count;
    keep(&shape->type, type);
    return 0;
}

static int is_named(const shape_t *shape, int index, const char *name)
{
    return index < shape->count && PyUnicode_CompareWithASCIIString(shape->names[index], name) == 0;
}

static PyObject *core_shapes(PyObject *module, PyObject *args)
{
    PyObject *record, *record_rows, *budget, *budget_rows;
    if (!PyArg_ParseTuple(args, "OOOO", &record, &record_rows, &budget, &budget_rows))
        return NULL;
    if (take_shape(&budget_shape, budget, budget_rows) < 0 || take_shape(&record_shape, record, record_rows) < 0)
        return NULL;
    for (int i = 0; i < KNOWN_FIELDS || i < KNOWN_PARTS; i++)
        if ((i < KNOWN_FIELDS && !is_named(&record_shape, i, known_fields[i])) ||
            (i < KNOWN_PARTS && !is_named(&budget_shape, i, known_parts[i]))) {
            Py_CLEAR(record_shape.type);
            PyErr_Format(PyExc_ValueError, "field %d of a record or budget is not the one that Request.record sets", i);
            return NULL;
        }
    Py_RETURN_NONE;
}

static PyMethodDef core_methods[] = {{"now_ns", core_now, METH_NOARGS, "Monotonic nanoseconds, as clock.now_ns."},
                                     {"shapes", core_shapes, METH_VARARGS,
                                      "The classes that Request.record makes, with their fields and defaults."},
                                     {"messages", core_messages, METH_VARARGS,
                                      "What capture/queueing.py knows of messages."},
                                     {"doze", core_doze, METH_VARARGS,
                                      "Tick until a step is over the limit (True), or for so long (False)."},
                                     {"rouse", core_rouse, METH_NOARGS, "End a doze that waits for a loop to begin something."},
                                     {"configure", core_configure, METH_VARARGS,
                                      "What adapters/asyncio_loop.py found out about this interpreter."},
                                     {NULL}};
static struct PyModuleDef core_module = {PyModuleDef_HEAD_INIT, "mcp_probe.native._core", NULL, -1, core_methods};

static int make_names(void)
{
    static const struct {
        PyObject **slot;
        const char *text;
    } names[] = {{&str_closed, "_closed"},   {&str_debug, "_debug"},     {&str_ready, "_ready"},
                 {&str_self, "__self__"},    {&str_done, "done"},        {&str_keep, "_keep"},
                 {&str_settle, "settle"},    {&str_charge, "_charge"},   {&str_write_to_self, "_write_to_self"},
                 {&str_run, "_run"},         {&str_broken, "broken"},    {&str_context, "context"},
                 {&str_writing, "writing"},  {&str_flushed, "flushed"},  {&str__context, "_context"},
                 {&str_get, "get"},          {&str_message, "message"}, {&str_params, "params"},
                 {&str_name, "name"},        {&str_method, "method"},    {&str_id, "id"},
                 {&str_error, "error"},      {&str_result, "result"},    {&str_is_error, "isError"},
                 {&str_forget, "forget"},    {&str_finish, "finish"},    {&str_consumed, "consumed"},
                 {&str_waiting, "waiting"},  {&str_arrived_by, "_arrived_by"},
                 {&str_answered, "_answered"},                           {&str_asking, "_asking"},
                 {&cancelled_outcome, "cancelled"},                      {&ok_outcome, "ok"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((*names[i].slot = PyUnicode_InternFromString(names[i].text)) == NULL)
            return -1;
    return (empty_tuple = PyTuple_New(0)) == NULL ? -1 : 0;
}

static PyObject *add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0)
        Py_CLEAR(type);
    return type;
}

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&core_module);
    if (module == NULL || make_names() < 0 || sem_init(&rouse_watchdog, 0, 0) < 0)
        return NULL;
    request_type = (PyTypeObject *)add_type(module, "Request", &request_spec);
    steps_type = (PyTypeObject *)add_type(module, "Steps", &steps_spec);
    handle_type = (PyTypeObject *)add_type(module, "Handle", &handle_spec);
    PyObject *schedule = add_type(module, "Schedule", &schedule_spec), *poll = add_type(module, "Poll", &poll_spec),
             *transport = add_type(module, "TransportCall", &transport_spec);
    PyObject *socket = add_type(module, "SocketReady", &socket_spec);
    desk_type = (PyTypeObject *)add_type(module, "Desk", &desk_spec);
    PyObject *channel = add_type(module, "Channel", &channel_spec);
    readings_type = (PyTypeObject *)add_type(module, "Readings", &readings_spec);
    if (request_type == NULL || steps_type == NULL || handle_type == NULL || schedule == NULL || poll == NULL ||
        transport == NULL || socket == NULL || readings_type == NULL || desk_type == NULL || channel == NULL)
        return NULL;
    return module;
}
