/* ---- Entrance: an ASGI app, or a method that is one, whose exchanges are followed (twin: adapters/asgi.py ProbedApp) ---- */

typedef struct {
    PyObject_HEAD
    vectorcall_t vectorcall;
    PyObject *app, *gate;
    Desk *desk;
    Steps *steps; /* the loop followed last */
} Entrance;

#define ENTRANCE_OBJECTS(EACH) EACH(app) EACH(gate) EACH(desk) EACH(steps)
TRAVERSE_AND_CLEAR(Entrance, entrance, ENTRANCE_OBJECTS)
DEALLOCATE(Entrance, entrance, NOTHING_TO_FREE)

/* The loop that runs here, followed: a new reference; NULL without an exception where there is none that is known. */
static Steps *steps_here(Entrance *self)
{
    Steps *known = self->steps;
    if (known != NULL && known->turn != NULL && runs_here(known))
        return (Steps *)Py_NewRef((PyObject *)known);
    PyObject *track = call_method(self->gate, str_follow);
    if (track != NULL && !PyObject_TypeCheck(track, steps_type))
        Py_CLEAR(track);
    if (track != NULL)
        keep((PyObject **)&self->steps, track);
    return (Steps *)track;
}

/* 1: an HTTP request that nobody further out has opened. */
static int is_first_sight(Entrance *self, PyObject *scope)
{
    if (!PyDict_Check(scope))
        return 0;
    PyObject *type = PyDict_GetItemWithError(scope, str_type), *outer = NULL;
    int active = truth_of(self->gate, str_active);
    if (active < 1 || type == NULL || !PyUnicode_Check(type) || PyUnicode_Compare(type, str_http) != 0)
        return active < 0 || PyErr_Occurred() ? -1 : 0;
    if (PyContextVar_Get(exchange_var, NULL, &outer) < 0)
        return -1;
    int opened = outer != Py_None && Py_TYPE(outer) == exchange_type && !is_set(((Exchange *)outer)->raw);
    Py_DECREF(outer);
    return !opened;
}

/* What enters the exchange when it is awaited; NULL with an exception. */
static PyObject *entered(Entrance *self, PyObject *const *args, Py_ssize_t nargs)
{
    Steps *steps = steps_here(self);
    if (steps == NULL) {
        if (PyErr_Occurred())
            return NULL;
        PyObject *all = arguments_from(args, 0, nargs), *found = NULL;
        if (all != NULL)
            found = PyObject_CallMethodObjArgs(self->gate, str_enter, self->app, all, NULL);
        Py_XDECREF(all);
        return found;
    }
    Awaited *made = awaited_of(ENTERS_EXCHANGE, self->gate, self->desk, NULL);
    if (made != NULL) {
        made->called = Py_NewRef(self->app);
        made->steps = (Steps *)Py_NewRef((PyObject *)steps);
        if ((made->args = arguments_from(args, 0, nargs)) == NULL)
            Py_CLEAR(made);
    }
    Py_DECREF((PyObject *)steps);
    return (PyObject *)made;
}

static PyObject *entrance_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Entrance *self = (Entrance *)callable;
    Py_ssize_t nargs = NARGS(nargsf);
    if (nargs >= 3 && (kwnames == NULL || PyTuple_Size(kwnames) == 0)) {
        int ours = is_first_sight(self, args[nargs - 3]);
        PyObject *made = ours == 1 ? entered(self, args, nargs) : NULL;
        if (made != NULL)
            return made;
        if (ours && tell_fault(self->gate, str_failed) < 0)
            return NULL;
    }
    return pass_on(self->app, args, nargs, kwnames);
}

static PyObject *entrance_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *app, *gate, *desk;
    if (!PyArg_ParseTuple(args, "OOO!", &app, &gate, desk_type, &desk))
        return NULL;
    Entrance *self = (Entrance *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        self->vectorcall = entrance_call;
        self->app = Py_NewRef(app);
        self->gate = Py_NewRef(gate);
        self->desk = (Desk *)Py_NewRef(desk);
    }
    return (PyObject *)self;
}

static PyObject *entrance_getattr(PyObject *self, PyObject *name)
{
    return attribute_of(self, ((Entrance *)self)->app, name);
}

static PyMemberDef entrance_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Entrance, vectorcall), READONLY, NULL},
    {"app", T_OBJECT, offsetof(Entrance, app), 0, NULL},
    {"__wrapped__", T_OBJECT, offsetof(Entrance, app), READONLY, NULL},
    {NULL}};
static PyType_Slot entrance_slots[] = {{Py_tp_new, entrance_new},           {Py_tp_call, PyVectorcall_Call},
                                       {Py_tp_descr_get, schedule_get},     {Py_tp_getattro, entrance_getattr},
                                       {Py_tp_traverse, entrance_traverse}, {Py_tp_clear, entrance_clear},
                                       {Py_tp_dealloc, entrance_dealloc},   {Py_tp_members, entrance_members},
                                       {0, NULL}};
static PyType_Spec entrance_spec = {"mcp_probe.native._core.Entrance", sizeof(Entrance), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL, entrance_slots};
