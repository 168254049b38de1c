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
static PyObject *current_var, *step_type, *wakeup_type, *task_type, *function_type, *handle_class, *handle_run_original, *timer_class,
    *deque_append, *report_exception, *describe_handle;

#define HANDLE_OBJECTS(EACH) \
    EACH(callback) EACH(args) EACH(loop) EACH(context) EACH(source_traceback) \
    EACH(repr) EACH(cancelled) EACH(steps)
TRAVERSE_AND_CLEAR(Handle, handle, HANDLE_OBJECTS)
#define CLEAR_HANDLE_REFERENCES(self) \
    if ((self)->weaklist != NULL) \
        PyObject_ClearWeakRefs((PyObject *)(self))
DEALLOCATE(Handle, handle, CLEAR_HANDLE_REFERENCES)

/* Steals args and context. */
static void handle_fill(Handle *self, PyObject *callback, PyObject *args, PyObject *loop, PyObject *context, Steps *steps)
{
    self->callback = Py_NewRef(callback);
    self->args = args;
    self->loop = Py_NewRef(loop);
    self->context = context;
    self->source_traceback = Py_NewRef(Py_None);
    self->repr = Py_NewRef(Py_None);
    self->cancelled = Py_NewRef(Py_False);
    self->weaklist = NULL;
    self->steps = (Steps *)Py_NewRef((PyObject *)steps);
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
    handle_fill(self, callback, args, loop, context, steps);
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

/* callback(*args); args is a tuple. */
static PyObject *call_with(PyObject *callback, PyObject *args)
{
    Py_ssize_t count = PyTuple_Size(args);
    if (count == 0)
        return PyObject_CallNoArgs(callback);
    if (count == 1)
        return call_with_one(callback, PyTuple_GetItem(args, 0));
    return PyObject_Call(callback, args, NULL);
}

static PyObject *call_back(Handle *self)
{
    PyObject *callback = Py_NewRef(self->callback), *args = Py_NewRef(self->args);
    PyObject *result = call_with(callback, PyTuple_Check(args) ? args : empty_tuple); /* cancelled meanwhile: both are None */
    Py_DECREF(callback);
    Py_DECREF(args);
    return result;
}

/* What events.Handle._run does with an exception of the callback: the loop's exception handler, or further up. */
static PyObject *handle_failed(PyObject *handle)
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
    PyObject *result = call_with_two(report_exception, handle, value);
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

/* The request that a context carries, or None: a new reference; -1 with an exception set. */
static int carried_by(PyObject *context, PyObject **owner)
{
    *owner = NULL;
    if (Py_TYPE(context) == &PyContext_Type && PyContext_Enter(context) == 0) { /* quicker than its get() */
        int failed = PyContextVar_Get(current_var, NULL, owner) < 0;
        return PyContext_Exit(context) < 0 || failed ? -1 : 0;
    }
    PyErr_Clear(); /* somebody is in it */
    *owner = call_method_with(context, str_get, current_var);
    return *owner == NULL ? -1 : 0;
}

/* Whose callback it is: a new reference or NULL; -1 with an exception set. `inside`: in the handle's own context. */
static int owner_of(Handle *self, int inside, PyObject **owner)
{
    return inside ? PyContextVar_Get(current_var, NULL, owner) : carried_by(self->context, owner);
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
        return handle_failed((PyObject *)self);
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
        result = wrapped ? call_with_one(run, (PyObject *)self) : call_back(self);
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
                PyObject *answer = call_method(task, str_done);
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
    else if (seen)
        memory_close(); /* followed no more: this step is nobody's any longer */
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
    return result == NULL && !wrapped && !stopped ? handle_failed((PyObject *)self) : result;
}

/* Handle._run of asyncio's own handles, unless somebody has wrapped it. */
static PyObject *run_plain(PyObject *handle)
{
    PyObject *run = PyObject_GetAttr(handle_class, str_run);
    int wrapped = run != handle_run_original;
    Py_XDECREF(run);
    if (run == NULL)
        return NULL;
    if (wrapped || ((PyObject *)Py_TYPE(handle) != handle_class && (PyObject *)Py_TYPE(handle) != timer_class))
        return call_method(handle, str_run);
    PyObject *context = PyObject_GetAttr(handle, str__context), *callback = PyObject_GetAttr(handle, str_callback),
             *args = PyObject_GetAttr(handle, str_args), *result = NULL;
    if (context == NULL || callback == NULL || args == NULL)
        ;
    else if (Py_TYPE(context) != &PyContext_Type || !PyTuple_Check(args))
        result = call_method(handle, str_run);
    else {
        if (PyContext_Enter(context) == 0) {
            result = call_with(callback, args);
            PyObject *type, *value, *traceback;
            PyErr_Fetch(&type, &value, &traceback);
            if (PyContext_Exit(context) < 0)
                Py_CLEAR(result);
            else
                PyErr_Restore(type, value, traceback);
        }
        if (result == NULL)
            result = handle_failed(handle);
    }
    Py_XDECREF(context);
    Py_XDECREF(callback);
    Py_XDECREF(args);
    return result;
}

static PyObject *handle_cancel(Handle *self, PyObject *ignored)
{
    if (self->cancelled != Py_True) {
        PyObject *cancelled = self->cancelled;
        self->cancelled = Py_NewRef(Py_True); /* first, as asyncio does: its repr says so */
        Py_XDECREF(cancelled);
        int described = truth_of(self->loop, str_debug);
        if (described < 0)
            return NULL;
        if (described) {
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
    return call_with_one(describe_handle, self);
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
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
                                      Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  handle_slots};
