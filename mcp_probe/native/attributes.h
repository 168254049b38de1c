/* ---- what a plain request says on its SERVER span while it still runs (by the long way: export/enrich.py) ----
 *
 * Plain: one unit, no threads, no collector pause, no wait long enough to ask who caused it.
 */

typedef struct {
    ns_t first;  /* its first step */
    int bounded; /* it may have arrived before it was seen to */
    ns_t busy, ready_wait, returning, awaiting, rest, queued, dispatched; /* the last two: -1 where they could not be seen */
    ns_t steps, longest, vague; /* vague: what ready_wait may be longer, and awaiting shorter */
} so_far_t;

/* 0 where it is not plain; -1 with an exception set. */
static int so_far(Request *r, const Steps *on, ns_t now, so_far_t *found)
{
    if (!is_set(r->first_step_ns) || is_set(r->spilled) || r->partial || PySequence_Size(r->jobs) ||
        PySequence_Size(r->pauses)) {
        PyErr_Clear();
        return 0;
    }
    int has_arrival = is_set(r->arrival_ns), has_taken = is_set(r->taken_ns);
    ns_t first = PyLong_AsLongLong(r->first_step_ns), arrival = has_arrival ? PyLong_AsLongLong(r->arrival_ns) : 0,
         earliest = is_set(r->arrival_earliest_ns) ? PyLong_AsLongLong(r->arrival_earliest_ns) : arrival,
         taken = has_taken ? PyLong_AsLongLong(r->taken_ns) : first;
    if (PyErr_Occurred())
        return -1;
    int fresh = r->mark_count == 0;
    ns_t since = on->since, woken = on->earliest > on->suspended ? on->earliest : on->suspended;
    single_t f;
    if ((has_arrival && first - (earliest < arrival ? earliest : arrival) > LATE_NS) ||
        (!fresh && (on->wake == WAKE_SPLIT || on->wake == WAKE_UNKNOWN || since - woken > LATE_NS)) ||
        (!fresh && find_unit(r, on->unit) == NULL) || !fold_single(r, first, since, &f))
        return 0;
    if (!fresh) {
        ns_t at = on->ready > on->suspended ? on->ready : on->suspended, waited = since - (at < since ? at : since);
        f.awaiting -= waited;
        if (on->wake == WAKE_THREAD)
            f.returning += waited;
        else
            f.ready_wait += waited;
        f.vague += at_least_0(on->ready - woken);
    }
    f.busy += now - since;
    f.longest = now - since > f.longest ? now - since : f.longest;
    ns_t rest = now - first - f.busy - f.ready_wait - f.returning - f.awaiting;
    *found = (so_far_t){first,
                        earliest < arrival,
                        f.busy,
                        f.ready_wait,
                        f.returning,
                        f.awaiting,
                        at_least_0(rest),
                        has_arrival && r->transport_seen ? at_least_0(taken - arrival) : -1,
                        has_taken ? at_least_0(first - taken) : -1,
                        f.steps + 1,
                        f.longest,
                        f.vague};
    return 1;
}

/* export/enrich.py PLAIN: names of attributes, and what their quality is called. */
enum { A_STEPS, A_STEP_MAX, A_BUSY, A_AWAITING, A_READY_WAIT, A_READY_WAIT_MIN, A_REST, A_QUEUED, A_DISPATCHED, A_RETURN,
       A_REQUEST_BYTES, A_REQUESTED, A_PEAK, A_QUALITY, A_QUALITIES, ATTRIBUTES };
enum { NO_TRANSPORT = 1, BOUNDED_ARRIVAL = 2, NO_DISPATCH = 4, VAGUE = 8, BOUNDED_PEAK = 16, NO_PEAK = 32, QUALITIES = 64 };

static int put_attribute(PyObject *found, PyObject *plain, int which, PyObject *value)
{
    int failed = value == NULL || PyDict_SetItem(found, PyTuple_GetItem(plain, which), value) < 0;
    Py_XDECREF(value);
    return failed;
}

static int put_seconds(PyObject *found, PyObject *plain, int which, ns_t ns)
{
    return put_attribute(found, plain, which, PyFloat_FromDouble((double)ns / 1e9));
}

static int put_count(PyObject *found, PyObject *plain, int which, ns_t count)
{
    return put_attribute(found, plain, which, PyLong_FromLongLong(count));
}

/* -1 with an exception set, else the bits that the quality has for it. */
static int put_memory(PyObject *found, PyObject *plain, const held_t *held)
{
    if (put_count(found, plain, A_REQUESTED, held->requested))
        return -1;
    if (memory.mode == MODE_GROSS)
        return NO_PEAK;
    if (put_count(found, plain, A_PEAK, held->peak))
        return -1;
    return held->requested > held->owned ? BOUNDED_PEAK : 0;
}

static int put_all(PyObject *found, PyObject *plain, Request *r, const so_far_t *so, const held_t *held)
{
    int failed = put_count(found, plain, A_STEPS, so->steps) || put_seconds(found, plain, A_STEP_MAX, so->longest) ||
                 put_seconds(found, plain, A_BUSY, so->busy) || put_seconds(found, plain, A_AWAITING, so->awaiting) ||
                 put_seconds(found, plain, A_READY_WAIT, so->ready_wait + so->vague) ||
                 (so->vague && put_seconds(found, plain, A_READY_WAIT_MIN, so->ready_wait)) ||
                 (so->rest && put_seconds(found, plain, A_REST, so->rest)) ||
                 (so->queued >= 0 && put_seconds(found, plain, A_QUEUED, so->queued)) ||
                 (so->dispatched >= 0 && put_seconds(found, plain, A_DISPATCHED, so->dispatched)) ||
                 (so->returning && put_seconds(found, plain, A_RETURN, so->returning)) ||
                 (is_set(r->request_bytes) && put_attribute(found, plain, A_REQUEST_BYTES, Py_NewRef(r->request_bytes)));
    int quality = failed ? -1 : held != NULL ? put_memory(found, plain, held) : 0;
    if (quality < 0)
        return -1;
    quality |= (so->queued < 0 ? NO_TRANSPORT : so->bounded ? BOUNDED_ARRIVAL : 0) | (so->dispatched < 0 ? NO_DISPATCH : 0) |
               (so->vague > 0 ? VAGUE : 0);
    PyObject *said = PyTuple_GetItem(PyTuple_GetItem(plain, A_QUALITIES), quality);
    return said == NULL || (quality && put_attribute(found, plain, A_QUALITY, Py_NewRef(said))) ? -1 : 0;
}

/* `plain` is as export/enrich.py has it. */
static int are_names(PyObject *plain)
{
    return PyTuple_Check(plain) && PyTuple_Size(plain) == ATTRIBUTES && PyTuple_Check(PyTuple_GetItem(plain, A_QUALITIES)) &&
           PyTuple_Size(PyTuple_GetItem(plain, A_QUALITIES)) == QUALITIES;
}

/* span_attributes(steps, now, measured_since, plain): see RawRequest. */
static PyObject *request_span_attributes(Request *r, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4 || !are_names(args[3])) {
        PyErr_SetString(PyExc_TypeError, "span_attributes() takes steps, now, since when memory is measured, and names");
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], steps_type) || ((Steps *)args[0])->owner != (PyObject *)r || !((Steps *)args[0])->since)
        Py_RETURN_NONE;
    ns_t now = PyLong_AsLongLong(args[1]), since = is_set(args[2]) ? PyLong_AsLongLong(args[2]) : 0;
    so_far_t so;
    int plain = PyErr_Occurred() ? -1 : so_far(r, (Steps *)args[0], now, &so);
    if (plain < 0)
        return NULL;
    if (!plain)
        Py_RETURN_NONE;
    held_t held;
    int measured = is_set(args[2]) && so.first >= since && memory_of(r, &held);
    paused_t paused = pause_charge();
    PyObject *found = PyDict_New();
    if (found != NULL && put_all(found, args[3], r, &so, measured ? &held : NULL) < 0)
        Py_CLEAR(found);
    resume_charge(paused);
    return found;
}
