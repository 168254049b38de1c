/* ---- Readings: clocks of a loop's thread, read tick by tick (twin: capture/readings.py) ---- */

#define READINGS 64
#define BASELINE_NS 5000000LL

typedef struct {
    ns_t at, cpu, queued, slices, process; /* queued, slices: -1 where nobody can tell */
} reading_t;

typedef struct {
    PyObject_HEAD
    Steps *steps;
    int schedstat; /* a descriptor, closed with this object, or -1 */
    int has_clock;
    clockid_t clock;
    ns_t last;
    char closed; /* whoever parks over it is to come back */
    char lock;   /* the watchdog writes without the GIL, and at a slow step's end the loop's thread
                    does too */
    unsigned int next;
    reading_t ring[READINGS];
} Readings;

#define READINGS_OBJECTS(EACH) EACH(steps)
TRAVERSE_AND_CLEAR(Readings, readings, READINGS_OBJECTS)
#define CLOSE_SCHEDSTAT(self) /* not before: the watchdog reads it without the GIL */ \
    if ((self)->schedstat >= 0) \
    close((self)->schedstat)
DEALLOCATE(Readings, readings, CLOSE_SCHEDSTAT)

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

/* The number that text begins with; leaves text behind it. -1 where there is none. */
static ns_t number_at(const char **text)
{
    ns_t number = -1;
    while (**text == ' ')
        ++*text;
    for (; **text >= '0' && **text <= '9'; ++*text)
        number = (number < 0 ? 0 : number * 10) + (**text - '0');
    return number;
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
        const char *at = text; /* "ran queued slices" */
        text[size] = 0;
        number_at(&at);
        ns_t queued = number_at(&at), slices = number_at(&at);
        if (slices >= 0) {
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
    return Py_BuildValue("(LNNNL)", r->at, or_none(r->cpu), or_none(r->queued), or_none(r->slices),
                         r->process);
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
static PyMemberDef readings_members[] = {{"closed", T_BOOL, offsetof(Readings, closed), 0, NULL},
                                         {NULL}};
static PyType_Slot readings_slots[] = {{Py_tp_new, readings_new},
                                       {Py_tp_traverse, readings_traverse},
                                       {Py_tp_clear, readings_clear},
                                       {Py_tp_dealloc, readings_dealloc},
                                       {Py_tp_methods, readings_methods},
                                       {Py_tp_members, readings_members},
                                       {0, NULL}};
static PyType_Spec readings_spec = {"mcp_probe.native._core.Readings", sizeof(Readings), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, readings_slots};
