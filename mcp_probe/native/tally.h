/* ---- what ends without a record: plain requests, summed up (Python: aggregate/fold.py Fold.sum_up) ---- */

typedef struct {
    Request *last; /* the places are its operation's */
    PyObject *places;
    Sums *sums;
    Uses *uses; /* NULL: no memory is summed up here */
} place_t;

static void leave_place(place_t *place)
{
    Py_CLEAR(place->places);
    Py_CLEAR(place->last);
}

static int is_same_text(PyObject *a, PyObject *b)
{
    return a == b || PyObject_RichCompareBool(a, b, Py_EQ);
}

/* 1: `place` is that of the operation of r. -1: an exception. */
static int find_place(place_t *place, Request *r, PyObject *place_of)
{
    if (place->last != NULL) {
        int same = is_same_text(place->last->method, r->method);
        same = same == 1 ? is_same_text(place->last->name, r->name) : same;
        if (same)
            return same;
    }
    leave_place(place);
    place->places = PyObject_CallFunctionObjArgs(place_of, (PyObject *)r, NULL);
    PyObject *sums = place->places == NULL ? NULL : PyTuple_GetItem(place->places, 0),
             *uses = sums == NULL ? NULL : PyTuple_GetItem(place->places, 1);
    if (uses == NULL)
        return -1;
    if (Py_TYPE(sums) != sums_type || (uses != Py_None && Py_TYPE(uses) != uses_type)) {
        PyErr_SetString(PyExc_TypeError, "place_of() must return Sums, and Uses or None");
        return -1;
    }
    place->sums = (Sums *)sums;
    place->uses = uses == Py_None ? NULL : (Uses *)uses;
    place->last = (Request *)Py_NewRef((PyObject *)r);
    return 1;
}

typedef struct {
    PyObject *place_of, *open_since, *method, *scope; /* open_since and method may be None */
    Sweep *sweep;
    ns_t hidden, since, first, last;
} summing_t;

/* 1: its memory is counted, or there is none. 0: Python must see to it. -1: an exception. */
static int sum_memory(summing_t *with, place_t *place, Request *r)
{
    if (with->method == Py_None || place->uses == NULL || !is_measured_alike(r, with->since))
        return 0;
    return is_empty(with->method) ? 1 : take_use(place->uses, r, with->method, with->scope, with->hidden);
}

static int sum_flight(summing_t *with, Request *r, const plain_t *plain, ns_t end)
{
    ns_t open_since = INT64_MAX;
    if (with->open_since != Py_None) {
        PyObject *since = PyObject_CallFunctionObjArgs(with->open_since, r->id, NULL);
        open_since = since == NULL ? -1 : PyLong_AsLongLong(since);
        Py_XDECREF(since);
        if (open_since == -1 && PyErr_Occurred())
            return -1;
    }
    if (PyUnicode_Compare(r->kind, kind_request) != 0)
        return PyErr_Occurred() ? -1 : 0;
    return sweep_one(with->sweep, (flown_t){plain->arrival, plain->result, end}, plain->of.awaiting, open_since);
}

/* 1: summed up. 0: its record says more. -1: an exception; it may be told as a record all the same. */
static int sum_one(summing_t *with, place_t *place, Request *r, PyObject *unmeasured)
{
    plain_t plain;
    ns_t end = 0;
    if (is_set(r->sent_ns))
        return 0;
    if (slot_number(r->end_ns, &end) != 1)
        end = now_ns();
    int taken = find_place(place, r, with->place_of);
    if (taken == 1)
        taken = take_request(place->sums, r, end, &plain);
    if (taken != 1)
        return taken;
    with->first = plain.arrival < with->first ? plain.arrival : with->first;
    with->last = end > with->last ? end : with->last;
    /* It is counted: from here on a fault costs what was to be added, but no second count. */
    if (sum_flight(with, r, &plain, end) < 0)
        PyErr_Clear();
    if (sum_memory(with, place, r) != 1) {
        PyErr_Clear();
        if (PyList_Append(unmeasured, (PyObject *)r) < 0)
            PyErr_Clear();
    }
    return 1;
}

/* sum_up(batch, place_of, sweep, open_since or None, method or None, scope, hidden, since):
 * (those whose records say more, those whose memory is still to be added, first arrival, last end). */
static PyObject *core_sum_up(PyObject *module, PyObject *args)
{
    PyObject *batch, *sweep;
    summing_t with = {.first = INT64_MAX, .last = INT64_MIN};
    place_t place = {0};
    if (!PyArg_ParseTuple(args, "O!OO!OOOLL", &PyList_Type, &batch, &with.place_of, sweep_type, &sweep, &with.open_since,
                          &with.method, &with.scope, &with.hidden, &with.since))
        return NULL;
    with.sweep = (Sweep *)sweep;
    PyObject *telling = PyList_New(0), *unmeasured = PyList_New(0), *found = NULL;
    int failed = telling == NULL || unmeasured == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(batch); i++) {
        Request *r = request_arg(PyList_GetItem(batch, i));
        if (r == NULL) {
            failed = 1;
            break;
        }
        if (sum_one(&with, &place, r, unmeasured) != 1) {
            PyErr_Clear();
            failed = PyList_Append(telling, (PyObject *)r) < 0;
        }
    }
    leave_place(&place);
    if (!failed)
        found = Py_BuildValue("(OOLL)", telling, unmeasured, with.first, with.last);
    Py_XDECREF(telling);
    Py_XDECREF(unmeasured);
    return found;
}

/* Adds (count, total) to small[operation], a list of both. */
static int add_small(PyObject *small, PyObject *operation, ns_t count, ns_t total)
{
    PyObject *row = PyDict_GetItemWithError(small, operation);
    if (row == NULL && PyErr_Occurred())
        return -1;
    if (row == NULL) {
        row = Py_BuildValue("[LL]", count, total);
        int failed = row == NULL || PyDict_SetItem(small, operation, row) < 0;
        Py_XDECREF(row);
        return failed ? -1 : 0;
    }
    count += PyLong_AsLongLong(PyList_GetItem(row, 0));
    total += PyLong_AsLongLong(PyList_GetItem(row, 1));
    if (PyErr_Occurred() || PyList_SetItem(row, 0, PyLong_FromLongLong(count)) < 0)
        return -1;
    return PyList_SetItem(row, 1, PyLong_FromLongLong(total));
}

/* note_small_steps(batch, small): their steps below RING_NS, added to {operation: [count, total]}. */
static PyObject *core_note_small_steps(PyObject *module, PyObject *args)
{
    PyObject *batch, *small, *last = NULL; /* whose steps are in count and total */
    ns_t count = 0, total = 0;
    int failed = 0;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &batch, &PyDict_Type, &small))
        return NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(batch); i++) {
        Request *r = request_arg(PyList_GetItem(batch, i));
        PyObject *operation = r == NULL ? NULL : request_operation(r, NULL);
        failed = operation == NULL || (operation != last && count && add_small(small, last, count, total) < 0);
        if (operation != last)
            count = total = 0;
        if (!failed)
            count += small_steps_of(r, &total);
        Py_XDECREF(last);
        last = operation;
    }
    failed = failed || (count && add_small(small, last, count, total) < 0);
    Py_XDECREF(last);
    return none_unless(failed);
}
