/* ---- Handle: asyncio's own handles, with the instant they became ready (twin:
 * adapters/asyncio_handles.py) ----
 *
 * One subclass each of asyncio's Handle, TimerHandle and, from 3.14 on, _ThreadSafeHandle. What
 * asyncio does in __init__ and _run it does itself: both are called. A handle holds nothing but
 * numbers of ours.
 */

typedef struct {
    ns_t earliest, ready;
    int wake;
    char inherited; /* what it wakes became ready with it */
} stamp_t;

/* One class of asyncio's and ours of it. `stamp`, `loop`, ...: where they are in an object. */
typedef struct {
    PyTypeObject *base, *type;
    Py_ssize_t stamp, loop, context, callback, args, when; /* when: 0 where it is no timer */
} kind_t;

#define KINDS 4
static kind_t handle_kinds[KINDS];
static int kind_count;

/* What the Python side has found out about this interpreter (see configure). */
static PyObject *current_var, *step_type, *wakeup_type, *task_type, *function_type;

/* The loop that runs on each thread, as far as it is followed. */
typedef struct {
    unsigned long thread;
    Steps *steps;
} place_t;
static place_t *places;
static int place_count, place_room;

static inline place_t *find_place(unsigned long thread)
{
    for (int i = 0; i < place_count; i++)
        if (places[i].thread == thread)
            return &places[i];
    return NULL;
}

static inline Steps *steps_here(void)
{
    place_t *found = find_place(PyThread_get_thread_ident());
    return found == NULL ? NULL : found->steps;
}

static inline int is_of(PyObject *loop, const Steps *steps)
{
    return steps->loop_id == (unsigned long long)(size_t)loop;
}

/* Of a loop that runs now, on whichever thread. */
static inline const Steps *steps_of(PyObject *loop)
{
    for (int i = 0; i < place_count; i++)
        if (is_of(loop, places[i].steps))
            return places[i].steps;
    return NULL;
}

/* `steps` is of the loop that runs on this thread. */
static int take_place(Steps *steps)
{
    place_t *found = find_place(steps->thread_id);
    if (found == NULL && place_count == place_room) {
        int room = place_room ? 2 * place_room : 8;
        place_t *moved = PyMem_Realloc(places, room * sizeof(place_t));
        if (moved == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        places = moved;
        place_room = room;
    }
    if (found == NULL)
        places[place_count++] = (place_t){steps->thread_id, (Steps *)Py_NewRef((PyObject *)steps)};
    else if (found->steps != steps) {
        Steps *before = found->steps;
        found->steps = (Steps *)Py_NewRef((PyObject *)steps);
        Py_DECREF(before);
    }
    return 0;
}

static void leave_place(Steps *steps)
{
    place_t *found = find_place(steps->thread_id);
    if (found == NULL || found->steps != steps)
        return;
    *found = places[--place_count];
    Py_DECREF(steps);
}

static const kind_t *kind_of(PyObject *handle)
{
    for (int i = 0; i < kind_count; i++)
        if (handle_kinds[i].type == Py_TYPE(handle))
            return &handle_kinds[i];
    for (int i = 0; i < kind_count; i++) /* somebody's subclass of ours */
        if (PyObject_TypeCheck(handle, handle_kinds[i].type))
            return &handle_kinds[i];
    return NULL;
}

static inline stamp_t *stamp_of(PyObject *handle, const kind_t *kind)
{
    return (stamp_t *)((char *)handle + kind->stamp);
}

/* Borrowed; NULL where it was deleted. */
static inline PyObject *slot_at(PyObject *handle, Py_ssize_t offset)
{
    return *(PyObject **)((char *)handle + offset);
}

static int handle_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    const kind_t *kind = kind_of(self);
    PyObject *rest[6] = {self}, *made = NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    if (kind == NULL || count > 5) {
        PyErr_SetString(PyExc_TypeError,
                        "a handle takes a callback, its arguments, a loop and a context");
        return -1;
    }
    PyObject *init = PyObject_GetAttr((PyObject *)kind->base, str_init);
    for (Py_ssize_t i = 0; i < count; i++)
        rest[i + 1] = PyTuple_GET_ITEM(args, i);
    if (init != NULL)
        made = PyObject_VectorcallDict(init, rest, (size_t)count + 1, kwargs);
    Py_XDECREF(init);
    if (made == NULL)
        return -1;
    Py_DECREF(made);
    stamp_t *stamp = stamp_of(self, kind);
    const Steps *steps = steps_of(slot_at(self, kind->loop));
    ns_t now = now_ns();
    *stamp = (stamp_t){now, now, WAKE_LOOP, 0};
    if (steps != NULL && steps->thread_id != PyThread_get_thread_ident())
        *stamp = (stamp_t){now, now, WAKE_THREAD, 1};
    else if (steps != NULL && steps->inherits)
        *stamp = (stamp_t){steps->inherit_earliest, steps->inherit_ready, steps->inherit_wake, 1};
    return 0;
}

/* The task whose step the callback is: a new reference, or NULL (no exception set). */
static PyObject *task_of(PyObject *callback, PyObject *args)
{
    PyObject *kind = (PyObject *)Py_TYPE(callback), *task = NULL;
    if (kind == step_type && kind != wakeup_type)
        task = PyObject_GetAttr(callback, str_self);
    else if (kind == wakeup_type && args != NULL && PyTuple_Check(args) && PyTuple_GET_SIZE(args)) {
        task = PyObject_GetAttr(callback, str_self);
        if (task != NULL && !PyObject_TypeCheck(task, (PyTypeObject *)task_type))
            Py_CLEAR(task);
    }
    if (task == NULL)
        PyErr_Clear();
    return task;
}

/* The request that a context carries, or None: a new reference; -1 with an exception set. */
static int carried_by(PyObject *context, PyObject **owner)
{
    *owner = NULL;
    if (PyContext_CheckExact(context) &&
        PyContext_Enter(context) == 0) { /* quicker than its get() */
        int failed = PyContextVar_Get(current_var, NULL, owner) < 0;
        return PyContext_Exit(context) < 0 || failed ? -1 : 0;
    }
    PyErr_Clear(); /* somebody is in it, or it is none */
    *owner = PyContext_CheckExact(context) ? call_method_with(context, str_get, current_var)
                                           : Py_NewRef(Py_None);
    return *owner == NULL ? -1 : 0;
}

/* What a handle ran for, as its step began. */
typedef struct {
    Steps *steps;
    PyObject *task, *owner;
    int followed;
} running_t;

/* Raises only what is no fault of ours. */
static int begin_handle(PyObject *self, const kind_t *kind, running_t *run)
{
    Steps *steps = run->steps;
    stamp_t stamp = *stamp_of(self, kind);
    ns_t now = now_ns();
    if (stamp.ready == 0) /* made without its __init__ */
        stamp.earliest = stamp.ready = now;
    if (kind->when) {
        PyObject *given = slot_at(self, kind->when);
        double when = given == NULL || !PyFloat_Check(given) ? -1.0 : PyFloat_AS_DOUBLE(given);
        /* A timer runs up to a tick before its deadline, and anything may stand there. */
        ns_t due = when > 0 && when * 1e9 < (double)now ? (ns_t)(when * 1e9) : now;
        stamp = (stamp_t){due, due, WAKE_LOOP, 1};
    }
    if (steps->owner != Py_None) { /* a request began in a step that we did not see end */
        if (steps_close(steps, now, 0) < 0)
            return -1;
    } else if (now - steps->now >= RING_NS && steps_stretch(steps, now) < 0)
        return -1;
    /* Not before: that ran Python, and another thread may have cancelled the handle. */
    PyObject *context = slot_at(self, kind->context), *callback = slot_at(self, kind->callback),
             *args = slot_at(self, kind->args);
    if (context == NULL || callback == NULL)
        return 0;
    if (carried_by(context, &run->owner) < 0)
        return -1;
    Request *request = as_request(run->owner);
    /* A request's answer is out, and this is clean-up that no task does: not worth a mark. */
    int clean_up = request != NULL && request->result_ns != NO_NS &&
                   (PyObject *)Py_TYPE(callback) == function_type;
    if (!steps->alive || (!stamp.inherited && (request == NULL || clean_up)))
        return 0;
    run->task = task_of(callback, args);
    if (run->task == NULL) {
        steps->inherit_earliest = stamp.earliest;
        steps->inherit_ready = stamp.ready;
        steps->inherit_wake = stamp.wake;
        steps->inherits = 1;
    }
    run->followed = 1;
    return steps_begin(steps, run->owner, (ns_t)(size_t)run->task, stamp.earliest, stamp.ready,
                       stamp.wake, now);
}

static int end_handle(running_t *run)
{
    Steps *steps = run->steps;
    ns_t now = now_ns();
    int done = 0;
    if (run->followed) {
        steps->inherits = 0;
        if (run->task != NULL && steps->owner != Py_None) {
            PyObject *answer = call_method(run->task, str_done);
            done = answer == NULL ? -1 : PyObject_IsTrue(answer);
            Py_XDECREF(answer);
        }
        return done < 0 ? -1 : steps_close(steps, now, done);
    }
    if (steps->owner != Py_None)
        return steps_close(steps, now, 0); /* a request began in the middle of this step */
    if (now - steps->now >= RING_NS)
        return steps_stretch(steps, now);
    steps->now = now;
    set_since(steps, now);
    return 0;
}

static PyObject *handle_run(PyObject *self, PyObject *ignored)
{
    const kind_t *kind = kind_of(self);
    running_t run = {kind == NULL ? NULL : steps_here()};
    PyObject *result = NULL, *type, *value, *traceback;
    /* Another loop, which is not followed, may run on the thread now. */
    int followed =
            run.steps != NULL && run.steps->alive && is_of(slot_at(self, kind->loop), run.steps),
        stopped = 0;
    Py_XINCREF(run.steps);
    if (followed && begin_handle(self, kind, &run) < 0)
        stopped = give_up(run.steps);
    PyObject *original =
        stopped || kind == NULL ? NULL : PyObject_GetAttr((PyObject *)kind->base, str_run);
    if (original != NULL)
        result = PyObject_CallOneArg(original, self);
    else if (kind == NULL)
        PyErr_SetString(PyExc_TypeError, "this is no handle");
    Py_XDECREF(original);
    if (followed && !stopped && run.steps->alive) {
        PyErr_Fetch(&type, &value, &traceback);
        if (end_handle(&run) < 0 && give_up(run.steps) < 0) {
            Py_CLEAR(result); /* a Ctrl-C came while Python ran for us: it goes on to the server */
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(traceback);
        } else
            PyErr_Restore(type, value, traceback);
    } else if (followed && memory_hooks != NULL)
        memory_hooks->close(); /* followed no more: this step is nobody's any longer */
    Py_XDECREF(run.steps);
    Py_XDECREF(run.task);
    Py_XDECREF(run.owner);
    return result;
}

static PyObject *handle_get_stamp(PyObject *self, void *closure)
{
    const stamp_t *stamp = stamp_of(self, kind_of(self));
    return Py_BuildValue("(LLi)", stamp->earliest, stamp->ready, stamp->wake);
}

/* Something other than its making makes it ready: a socket. */
static int handle_set_stamp(PyObject *self, PyObject *value, void *closure)
{
    stamp_t stamp = {.inherited = 1};
    if (!PyArg_Parse(value == NULL ? Py_None : value, "(LLi)", &stamp.earliest, &stamp.ready,
                     &stamp.wake))
        return -1;
    *stamp_of(self, kind_of(self)) = stamp;
    return 0;
}

static PyGetSetDef handle_getset[] = {{"stamp", handle_get_stamp, handle_set_stamp, NULL, NULL},
                                      {NULL}};
static PyMethodDef handle_methods[] = {{"_run", handle_run, METH_NOARGS, NULL}, {NULL}};
static PyType_Slot handle_slots[] = {{Py_tp_init, handle_init},
                                     {Py_tp_getset, handle_getset},
                                     {Py_tp_methods, handle_methods},
                                     {0, NULL}};

/* Where a class keeps a slot of its own, or of a base's; 0 where it has none. */
static Py_ssize_t offset_of(PyTypeObject *type, const char *name)
{
    PyObject *found = PyObject_GetAttrString((PyObject *)type, name);
    Py_ssize_t offset = 0;
    if (found != NULL && Py_IS_TYPE(found, &PyMemberDescr_Type))
        offset = ((PyMemberDescrObject *)found)->d_member->offset;
    PyErr_Clear();
    Py_XDECREF(found);
    return offset;
}

static PyTypeObject *make_type(PyTypeObject *metaclass, PyType_Spec *spec, PyObject *base)
{
#if PY_VERSION_HEX >= 0x030C0000
    return (PyTypeObject *)PyType_FromMetaclass(metaclass, NULL, spec, base);
#else
    PyTypeObject *made = (PyTypeObject *)PyType_FromSpecWithBases(spec, base);
    if (made != NULL) { /* it says no more than its own class does of how it is laid out */
        Py_INCREF(metaclass);
        Py_SET_TYPE(made, metaclass);
    }
    return made;
#endif
}

/* Our subclass of one of asyncio's classes of handles, made once. */
static PyObject *core_handle_class(PyObject *module, PyObject *args)
{
    PyObject *base;
    PyTypeObject *metaclass;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &base, &PyType_Type, &metaclass))
        return NULL;
    if (!PyType_IsSubtype(metaclass, &PyType_Type) ||
        metaclass->tp_basicsize != PyType_Type.tp_basicsize)
        return PyErr_Format(PyExc_TypeError, "a metaclass of handles adds nothing to its classes");
    for (int i = 0; i < kind_count; i++)
        if ((PyObject *)handle_kinds[i].base == base)
            return Py_NewRef(handle_kinds[i].type);
    kind_t kind = {(PyTypeObject *)base};
    kind.loop = offset_of(kind.base, "_loop");
    kind.context = offset_of(kind.base, "_context");
    kind.callback = offset_of(kind.base, "_callback");
    kind.args = offset_of(kind.base, "_args");
    kind.when = offset_of(kind.base, "_when");
    kind.stamp = kind.base->tp_basicsize;
    if (kind_count == KINDS || !kind.loop || !kind.context || !kind.callback || !kind.args ||
        kind.stamp % (Py_ssize_t)sizeof(ns_t)) {
        PyErr_Format(PyExc_RuntimeError, "%R is not a class of handles that is known here", base);
        return NULL;
    }
    PyType_Spec spec = {"mcp_probe.native._core.Handle",
                        (int)(kind.stamp + (Py_ssize_t)sizeof(stamp_t)), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, handle_slots};
    kind.type = make_type(metaclass, &spec, base);
    if (kind.type == NULL)
        return NULL;
    Py_INCREF(base);
    handle_kinds[kind_count++] = kind;
    return Py_NewRef(kind.type);
}

static PyObject *core_follow(PyObject *module, PyObject *steps)
{
    if (!PyObject_TypeCheck(steps, steps_type))
        return PyErr_Format(PyExc_TypeError, "follow() takes a Steps");
    return none_unless(take_place((Steps *)steps) < 0);
}

static PyObject *core_unfollow(PyObject *module, PyObject *steps)
{
    if (PyObject_TypeCheck(steps, steps_type))
        leave_place((Steps *)steps);
    Py_RETURN_NONE;
}
