/* ---- Sweep: how many requests were in flight at once (twin: aggregate/flight.py PythonSweep) ---- */

#define REORDER 1024
#define MAX_ACTIVE 65536
#define GAP_NS 1000000LL

typedef struct {
    ns_t arrival, result, end;
} flown_t;

typedef struct {
    PyObject_HEAD
    flown_t *waiting; /* sorted: `used` from `first` on, of 2 * REORDER */
    ns_t *active;     /* a heap of results, the least first */
    int first, used, active_count, active_room;
    ns_t last_arrival, last_end, max_in_flight, serial_gaps, total_ns, awaiting_ns;
    char begun; /* the last arrival and end are known */
} Sweep;

static PyTypeObject *sweep_type;

static void sweep_dealloc(Sweep *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(self->waiting);
    PyMem_Free(self->active);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *sweep_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Sweep *self = (Sweep *)PyType_GenericAlloc(type, 0);
    if (self != NULL && (self->waiting = PyMem_Malloc(2 * REORDER * sizeof(flown_t))) == NULL) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int is_before(const flown_t *a, const flown_t *b)
{
    if (a->arrival != b->arrival)
        return a->arrival < b->arrival;
    return a->result != b->result ? a->result < b->result : a->end < b->end;
}

static void add_active(ns_t *heap, int count, ns_t value)
{
    int at = count;
    for (; at > 0 && heap[(at - 1) / 2] > value; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
}

static void drop_least(ns_t *heap, int count)
{
    ns_t last = heap[count - 1];
    int at = 0;
    for (int child = 1; child < count - 1; child = 2 * at + 1) {
        if (child + 1 < count - 1 && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
}

static void take_flown(Sweep *self, flown_t flown, ns_t open_since)
{
    if (self->begun && flown.arrival < self->last_arrival)
        self->max_in_flight = self->max_in_flight > 2 ? self->max_in_flight : 2;
    else
        self->last_arrival = flown.arrival;
    while (self->active_count && self->active[0] <= flown.arrival)
        drop_least(self->active, self->active_count--);
    int alone = !self->active_count && flown.arrival <= open_since;
    if (alone && self->begun && flown.arrival - self->last_end < GAP_NS)
        self->serial_gaps++;
    if (self->active_count < MAX_ACTIVE)
        add_active(self->active, self->active_count++, flown.result);
    if (self->active_count > self->max_in_flight)
        self->max_in_flight = self->active_count;
    if (!self->begun || flown.end > self->last_end)
        self->last_end = flown.end;
    self->begun = 1;
}

/* Everything that can fail comes first; -1 with an exception. */
static int sweep_one(Sweep *self, flown_t flown, ns_t awaiting, ns_t open_since)
{
    if (make_room((void **)&self->active, self->active_count, &self->active_room, sizeof(ns_t)) < 0)
        return -1;
    self->total_ns += at_least_0(flown.end - flown.arrival);
    self->awaiting_ns += awaiting;
    if (self->first + self->used == 2 * REORDER) {
        memmove(self->waiting, self->waiting + self->first, self->used * sizeof(flown_t));
        self->first = 0;
    }
    flown_t *begin = self->waiting + self->first, *at = begin + self->used;
    while (at > begin && is_before(&flown, at - 1))
        at--;
    memmove(at + 1, at, (char *)(begin + self->used) - (char *)at);
    *at = flown;
    if (self->used < REORDER)
        self->used++;
    else
        take_flown(self, self->waiting[self->first++], open_since);
    return 0;
}

static PyObject *sweep_count(Sweep *self, PyObject *args)
{
    flown_t flown;
    ns_t awaiting, open_since;
    if (!PyArg_ParseTuple(args, "LLLLL", &flown.arrival, &flown.result, &flown.end, &awaiting, &open_since))
        return NULL;
    return none_unless(sweep_one(self, flown, awaiting, open_since) < 0);
}

static PyObject *sweep_state(Sweep *self, PyObject *ignored)
{
    PyObject *waiting = PyList_New(0), *active = PyList_New(0);
    for (int i = 0; waiting != NULL && i < self->used; i++) {
        const flown_t *flown = &self->waiting[self->first + i];
        PyObject *row = Py_BuildValue("(LLL)", flown->arrival, flown->result, flown->end);
        if (row == NULL || PyList_Append(waiting, row) < 0)
            Py_CLEAR(waiting);
        Py_XDECREF(row);
    }
    for (int i = 0; active != NULL && i < self->active_count; i++) {
        PyObject *result = PyLong_FromLongLong(self->active[i]);
        if (result == NULL || PyList_Append(active, result) < 0)
            Py_CLEAR(active);
        Py_XDECREF(result);
    }
    PyObject *last_arrival = self->begun ? PyLong_FromLongLong(self->last_arrival) : Py_NewRef(Py_None),
             *last_end = self->begun ? PyLong_FromLongLong(self->last_end) : Py_NewRef(Py_None), *found = NULL;
    if (waiting != NULL && active != NULL && last_arrival != NULL && last_end != NULL)
        found = Py_BuildValue("(OOOO(LLLL))", waiting, active, last_arrival, last_end, self->max_in_flight,
                              self->serial_gaps, self->total_ns, self->awaiting_ns);
    Py_XDECREF(waiting);
    Py_XDECREF(active);
    Py_XDECREF(last_arrival);
    Py_XDECREF(last_end);
    return found;
}

static PyMethodDef sweep_methods[] = {
    {"count", (PyCFunction)sweep_count, METH_VARARGS, "(arrival, result, end, awaiting, open_since): one more has ended."},
    {"state", (PyCFunction)sweep_state, METH_NOARGS, "What a PythonSweep is made of."},
    {NULL}};
static PyType_Slot sweep_slots[] = {{Py_tp_new, sweep_new}, {Py_tp_dealloc, sweep_dealloc},
                                    {Py_tp_methods, sweep_methods}, {0, NULL}};
static PyType_Spec sweep_spec = {"mcp_probe.native._core.Sweep", sizeof(Sweep), 0, Py_TPFLAGS_DEFAULT, sweep_slots};
