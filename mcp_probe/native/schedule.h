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

#define SCHEDULE_OBJECTS(EACH) EACH(original) EACH(loop) EACH(tracks) EACH(steps) EACH(name)
TRAVERSE_AND_CLEAR(Schedule, schedule, SCHEDULE_OBJECTS)
DEALLOCATE(Schedule, schedule, NOTHING_TO_FREE)

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

/* 1: no keywords but perhaps `context`, which is NULL where it is none; 0: others, or one that asyncio only calls run() of. */
static int is_context_alone(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **context)
{
    Py_ssize_t keywords = kwnames == NULL ? 0 : PyTuple_Size(kwnames);
    *context = NULL;
    if (keywords == 0)
        return 1;
    if (keywords > 1 || PyUnicode_Compare(PyTuple_GetItem(kwnames, 0), str_context) != 0)
        return 0;
    if (args[nargs] == Py_None)
        return 1;
    *context = args[nargs];
    return Py_TYPE(*context) == &PyContext_Type;
}

static PyObject *schedule_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Schedule *self = (Schedule *)callable;
    Py_ssize_t nargs = NARGS(nargsf);
    PyObject *context = NULL;
    Steps *steps = nargs >= 2 ? follow(self, args[0]) : NULL;
    int known = steps != NULL && steps->alive && is_context_alone(args, nargs, kwnames, &context);
    /* In the middle of a turn its loop is open, and was in no debug mode when that began. */
    PyObject *turn = known && !self->from_thread ? steps->turn : NULL;
    if (!known || (turn == NULL && !is_plain(args[0]))) {
        Py_XDECREF((PyObject *)steps);
        return pass_on(self->original, args, nargs, kwnames);
    }
    PyObject *loop = args[0];
    context = context != NULL ? Py_NewRef(context) : PyContext_CopyCurrent();
    PyObject *rest = arguments_from(args, 2, nargs);
    if (context == NULL || rest == NULL) {
        Py_XDECREF(context);
        Py_XDECREF(rest);
        Py_DECREF(steps);
        return NULL;
    }
    Handle *handle = handle_make(args[1], rest, loop, context, steps);
    PyObject *queue = handle == NULL ? NULL : turn != NULL ? Py_NewRef(turn) : PyObject_GetAttr(loop, str_ready);
    PyObject *done = NULL;
    if (queue != NULL) {
        if (self->from_thread && PyThread_get_thread_ident() != steps->thread_id) {
            /* The loop's thread may be inside a callback of its own, but that is not what wakes us. */
            handle->earliest = handle->ready = now_ns();
            handle->wake = WAKE_THREAD;
            handle->inherited = 1;
        }
        done = call_with_two(deque_append, queue, (PyObject *)handle);
        if (done == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) { /* a queue of the loop's own kind */
            PyErr_Clear();
            done = PyObject_CallMethod(queue, "append", "O", (PyObject *)handle);
        }
    }
    Py_XDECREF(queue);
    Py_DECREF(steps);
    if (done != NULL && self->from_thread) {
        Py_DECREF(done);
        done = call_method(loop, str_write_to_self);
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

/* Steals name, which may be NULL with an exception set. */
static PyObject *schedule_made(PyTypeObject *type, vectorcall_t call, PyObject *original, PyObject *tracks, PyObject *name)
{
    Schedule *self = name == NULL ? NULL : (Schedule *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(name);
        return NULL;
    }
    self->vectorcall = call;
    self->original = Py_NewRef(original);
    self->tracks = Py_NewRef(tracks);
    self->name = name;
    return (PyObject *)self;
}

static PyObject *schedule_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *original, *tracks, *name;
    int from_thread;
    if (!PyArg_ParseTuple(args, "OOUp", &original, &tracks, &name, &from_thread))
        return NULL;
    PyObject *self = schedule_made(type, schedule_call, original, tracks, Py_NewRef(name));
    if (self != NULL)
        ((Schedule *)self)->from_thread = (char)from_thread;
    return self;
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
/* A type of the same layout: what stands for a method of the loop, made by prefix_new. */
#define SCHEDULE_TYPE(prefix, name) \
    static PyType_Slot prefix##_slots[] = {{Py_tp_new, prefix##_new}, \
                                           {Py_tp_call, PyVectorcall_Call}, \
                                           {Py_tp_descr_get, schedule_get}, \
                                           {Py_tp_traverse, schedule_traverse}, \
                                           {Py_tp_clear, schedule_clear}, \
                                           {Py_tp_dealloc, schedule_dealloc}, \
                                           {Py_tp_members, schedule_members}, \
                                           {Py_tp_methods, schedule_methods}, \
                                           {0, NULL}}; \
    static PyType_Spec prefix##_spec = {"mcp_probe.native._core." name, sizeof(Schedule), 0, \
                                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL | \
                                            Py_TPFLAGS_METHOD_DESCRIPTOR, \
                                        prefix##_slots};
SCHEDULE_TYPE(schedule, "Schedule")
