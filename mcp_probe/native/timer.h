/* ---- Timer and Timers: BaseEventLoop.call_at, so that a request's timer knows its deadline (twin: asyncio_loop.py) ----
 *
 * A Timer is asyncio's TimerHandle as a loop's heap, its turns and its callers see it. Loops that are followed but not
 * asyncio's own in every part get asyncio's, marked by its class.
 * Source: asyncio/events.py and base_events.py, the same from CPython 3.10 to 3.13.
 */

static PyObject *stamped_timer_class, *timer_cancelled, *heap_push, *str_class, *str_when, *str_scheduled,
    *str_timer_handle_cancelled, *str_timer_cancelled_count;
static PyTypeObject *timer_type;

typedef struct {
    Handle handle;
    PyObject *when, *scheduled;
    double due;    /* `when` */
    char is_timed; /* a request's: it became ready at its deadline */
} Timer;

#define TIMER_OBJECTS(EACH) EACH(when) EACH(scheduled)
static int timer_traverse(Timer *self, visitproc visit, void *arg)
{
    TIMER_OBJECTS(VISIT_FIELD)
    return handle_traverse(&self->handle, visit, arg);
}

static int timer_clear(Timer *self)
{
    TIMER_OBJECTS(CLEAR_FIELD)
    return handle_clear(&self->handle);
}
#define CLEAR_TIMER_REFERENCES(self) CLEAR_HANDLE_REFERENCES(&(self)->handle)
DEALLOCATE(Timer, timer, CLEAR_TIMER_REFERENCES)

/* Steals args and context. `is_timed`: it is a request's. */
static Timer *timer_make(PyObject *when, PyObject *callback, PyObject *args, PyObject *loop, PyObject *context, Steps *steps,
                         int is_timed)
{
    Timer *self = (Timer *)PyObject_GC_New(Timer, timer_type);
    if (self == NULL) {
        Py_DECREF(args);
        Py_DECREF(context);
        return NULL;
    }
    handle_fill(&self->handle, callback, args, loop, context, steps);
    self->handle.earliest = self->handle.ready = 0;
    self->handle.wake = WAKE_LOOP;
    self->handle.inherited = 0;
    self->when = Py_NewRef(when);
    self->scheduled = Py_NewRef(Py_True);
    self->due = PyFloat_AsDouble(when);
    self->is_timed = (char)is_timed;
    PyObject_GC_Track(self);
    return self;
}

static PyObject *timer_run(Timer *self, PyObject *ignored)
{
    if (self->is_timed) {
        ns_t now = now_ns();
        double due = self->due < 0 ? 0 : self->due * 1e9; /* it runs up to a clock tick before that */
        self->handle.earliest = self->handle.ready = due < (double)now ? llround(due) : now;
        self->handle.inherited = 1;
    }
    return handle_run(&self->handle, NULL);
}

/* So many more of the loop's timers are cancelled. */
static int count_cancelled(PyObject *loop, long more)
{
    PyObject *before = PyObject_GetAttr(loop, str_timer_cancelled_count), *change = PyLong_FromLong(more);
    PyObject *after = before == NULL || change == NULL ? NULL : PyNumber_Add(before, change);
    int failed = after == NULL || PyObject_SetAttr(loop, str_timer_cancelled_count, after) < 0;
    Py_XDECREF(before);
    Py_XDECREF(change);
    Py_XDECREF(after);
    return failed ? -1 : 0;
}

/* What BaseEventLoop._timer_handle_cancelled does, where it is asyncio's own. */
static int tell_cancelled(Timer *self)
{
    PyObject *loop = self->handle.loop, *own = PyObject_GetAttr((PyObject *)Py_TYPE(loop), str_timer_handle_cancelled);
    Py_XDECREF(own);
    if (own == NULL)
        return -1;
    if (own != timer_cancelled)
        return call_one(loop, str_timer_handle_cancelled, (PyObject *)self);
    return self->scheduled == Py_True ? count_cancelled(loop, 1) : 0;
}

static PyObject *timer_cancel(Timer *self, PyObject *ignored)
{
    if (self->handle.cancelled != Py_True && self->handle.loop != NULL && tell_cancelled(self) < 0)
        return NULL;
    return handle_cancel(&self->handle, NULL);
}

static PyObject *timer_when(Timer *self, PyObject *ignored)
{
    return Py_NewRef(self->when == NULL ? Py_None : self->when);
}

static Py_hash_t timer_hash(Timer *self)
{
    return PyObject_Hash(self->when);
}

/* Asyncio's own comparison: what is not asked by a heap. */
static PyObject *compare_slowly(PyObject *self, PyObject *other, int op)
{
    static const char *const names[] = {"__lt__", "__le__", "__eq__", "__eq__", "__gt__", "__ge__"};
    PyObject *own = PyObject_GetAttrString(timer_class, names[op]), *answer = NULL;
    if (own != NULL)
        answer = call_with_two(own, self, other);
    Py_XDECREF(own);
    if (op == Py_NE && answer != NULL && answer != Py_NotImplemented) {
        int equal = PyObject_IsTrue(answer);
        Py_DECREF(answer);
        answer = equal < 0 ? NULL : Py_NewRef(equal ? Py_False : Py_True);
    }
    return answer;
}

static PyObject *timer_compare(PyObject *self, PyObject *other, int op)
{
    if (op == Py_LT && Py_TYPE(other) == timer_type)
        return Py_NewRef(((Timer *)self)->due < ((Timer *)other)->due ? Py_True : Py_False);
    return compare_slowly(self, other, op);
}

static PyObject *timer_get_class(PyObject *self, void *closure)
{
    return Py_NewRef(timer_class); /* isinstance(timer, asyncio.TimerHandle) must hold */
}

static PyMemberDef timer_members[] = {{"_when", T_OBJECT_EX, offsetof(Timer, when), READONLY, NULL},
                                      {"_scheduled", T_OBJECT_EX, offsetof(Timer, scheduled), 0, NULL},
                                      {NULL}};
static PyGetSetDef timer_getset[] = {{"__class__", timer_get_class, NULL, NULL, NULL}, {NULL}};
static PyMethodDef timer_methods[] = {{"_run", (PyCFunction)timer_run, METH_NOARGS, NULL},
                                      {"cancel", (PyCFunction)timer_cancel, METH_NOARGS, NULL},
                                      {"when", (PyCFunction)timer_when, METH_NOARGS, NULL},
                                      {NULL}};
static PyType_Slot timer_slots[] = {{Py_tp_traverse, timer_traverse}, {Py_tp_clear, timer_clear},
                                    {Py_tp_dealloc, timer_dealloc},   {Py_tp_members, timer_members},
                                    {Py_tp_getset, timer_getset},     {Py_tp_methods, timer_methods},
                                    {Py_tp_hash, timer_hash},         {Py_tp_richcompare, timer_compare},
                                    {0, NULL}};
static PyType_Spec timer_spec = {"mcp_probe.native._core.Timer", sizeof(Timer), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, timer_slots};

/* Makes asyncio's own timer one of a request, where its context carries one. */
static int mark_timer(PyObject *timer)
{
    PyObject *context = PyObject_GetAttr(timer, str__context), *raw = NULL;
    int failed = context == NULL || (Py_TYPE(context) == &PyContext_Type && carried_by(context, &raw) < 0);
    failed = failed || (is_set(raw) && PyObject_SetAttr(timer, str_class, stamped_timer_class) < 0);
    Py_XDECREF(context);
    Py_XDECREF(raw);
    return failed ? -1 : 0;
}

/* call_at as asyncio writes it. NULL without an exception: this loop is not one where that holds. */
static PyObject *own_timer(Steps *steps, PyObject *const *args, Py_ssize_t nargs, PyObject *context)
{
    PyObject *loop = args[0];
    if ((steps->turn == NULL && !is_plain(loop)) || !PyFloat_CheckExact(args[1]))
        return NULL;
    PyObject *scheduled = PyObject_GetAttr(loop, str_scheduled);
    if (scheduled == NULL || !PyList_CheckExact(scheduled)) {
        Py_XDECREF(scheduled);
        PyErr_Clear();
        return NULL;
    }
    PyObject *raw = NULL, *rest = arguments_from(args, 3, nargs);
    int failed = context != NULL ? carried_by(context, &raw) < 0 : PyContextVar_Get(current_var, NULL, &raw) < 0;
    context = context != NULL ? Py_NewRef(context) : PyContext_CopyCurrent();
    Timer *timer = NULL;
    if (failed || context == NULL || rest == NULL) {
        Py_XDECREF(context);
        Py_XDECREF(rest);
    }
    else
        timer = timer_make(args[1], args[2], rest, loop, context, steps, is_set(raw));
    Py_XDECREF(raw);
    PyObject *done = timer == NULL ? NULL : call_with_two(heap_push, scheduled, (PyObject *)timer);
    if (done == NULL)
        Py_CLEAR(timer);
    Py_XDECREF(done);
    Py_DECREF(scheduled);
    return (PyObject *)timer;
}

static PyObject *timers_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Schedule *self = (Schedule *)callable;
    Py_ssize_t nargs = NARGS(nargsf);
    PyObject *context = NULL, *timer = NULL;
    Steps *steps = nargs >= 3 ? follow(self, args[0]) : NULL;
    if (steps != NULL && steps->alive && is_context_alone(args, nargs, kwnames, &context) &&
        ((timer = own_timer(steps, args, nargs, context)) != NULL || PyErr_Occurred())) {
        Py_DECREF((PyObject *)steps);
        return timer;
    }
    timer = pass_on(self->original, args, nargs, kwnames);
    if (timer != NULL && (PyObject *)Py_TYPE(timer) == timer_class && steps != NULL && mark_timer(timer) < 0 &&
        give_up(steps))
        Py_CLEAR(timer);
    Py_XDECREF((PyObject *)steps);
    return timer;
}

static PyObject *timers_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *original, *tracks, *plain, *stamped, *push, *cancelled;
    if (!PyArg_ParseTuple(args, "OO!OOOO", &original, &PyDict_Type, &tracks, &plain, &stamped, &push, &cancelled))
        return NULL;
    keep(&timer_class, plain);
    keep(&stamped_timer_class, stamped);
    keep(&heap_push, push);
    keep(&timer_cancelled, cancelled);
    return schedule_made(type, timers_call, original, tracks, PyUnicode_FromString("call_at"));
}

static int make_timer_names(void)
{
    static const name_t names[] = {{&str_class, "__class__"},
                                   {&str_when, "_when"},
                                   {&str_scheduled, "_scheduled"},
                                   {&str_timer_handle_cancelled, "_timer_handle_cancelled"},
                                   {&str_timer_cancelled_count, "_timer_cancelled_count"}};
    return INTERN(names);
}

SCHEDULE_TYPE(timers, "Timers")
