/* ---- Uses: what the memory figures of one operation add up to (twin: aggregate/memory.py MemoryTally.add) ---- */

#define FIGURES 3 /* requested, peak, retained */

typedef struct {
    buckets_t values, least, most;
    ns_t max, max_least, max_most, unseen;
    int tags; /* a bit per rank in tag_names */
    char open_below, open_above;
} figure_t;

typedef struct {
    PyObject_HEAD
    PyObject *method, *scope; /* of the uses taken in so far */
    ns_t count, measured;
    figure_t figures[FIGURES];
} Uses;

static PyTypeObject *uses_type;

static const char *const tag_names[] = {"exact", "bounded", "lower", "upper", "estimate", "unavailable"};
enum { TAG_EXACT = 0, TAG_BOUNDED = 1, TAG_LOWER = 2, TAG_UPPER = 3, TAGS = 6 };
static PyObject *str_requested, *str_peak, *str_retained, *str_scope, *str_quality_rows, *str_arguments;

#define USES_OBJECTS(EACH) EACH(method) EACH(scope)
TRAVERSE_AND_CLEAR(Uses, uses, USES_OBJECTS)

static void uses_reset(Uses *self)
{
    Py_CLEAR(self->method);
    Py_CLEAR(self->scope);
    self->count = self->measured = 0;
    for (int i = 0; i < FIGURES; i++) {
        figure_t *figure = &self->figures[i];
        buckets_reset(&figure->values);
        buckets_reset(&figure->least);
        buckets_reset(&figure->most);
        figure->max = figure->max_least = figure->max_most = figure->unseen = 0;
        figure->tags = figure->open_below = figure->open_above = 0;
    }
}

static void uses_free_rows(Uses *self)
{
    for (int i = 0; i < FIGURES; i++) {
        PyMem_Free(self->figures[i].values.rows);
        PyMem_Free(self->figures[i].least.rows);
        PyMem_Free(self->figures[i].most.rows);
    }
}
DEALLOCATE(Uses, uses, uses_free_rows)

static PyObject *uses_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return PyType_GenericAlloc(type, 0); /* all zero: nothing counted, no rows */
}

/* One figure of one call. */
typedef struct {
    int known, tag, has_lo, has_hi;
    ns_t value, lo, hi;
} use_t;

static int take_row(PyObject *row, use_t *uses)
{
    PyObject *const names[] = {str_requested, str_peak, str_retained};
    if (!PyTuple_CheckExact(row) || PyTuple_Size(row) != 4)
        return 0;
    PyObject *name = PyTuple_GetItem(row, 0), *tag = PyTuple_GetItem(row, 1);
    if (!PyUnicode_Check(name) || !PyUnicode_Check(tag))
        return 0;
    for (int i = 0; i < FIGURES; i++) {
        if (name != names[i] && PyUnicode_Compare(name, names[i]) != 0)
            continue;
        for (uses[i].tag = 0; uses[i].tag < TAGS; uses[i].tag++)
            if (PyUnicode_CompareWithASCIIString(tag, tag_names[uses[i].tag]) == 0)
                break;
        uses[i].has_lo = number_of(PyTuple_GetItem(row, 2), &uses[i].lo);
        uses[i].has_hi = number_of(PyTuple_GetItem(row, 3), &uses[i].hi);
        return uses[i].tag < TAGS && uses[i].has_lo >= 0 && uses[i].has_hi >= 0;
    }
    return 0;
}

/* Whether those before it were measured alike; the first one says how. */
static int is_alike(Uses *self, PyObject *method, PyObject *scope)
{
    return self->method == NULL || (PyObject_RichCompareBool(method, self->method, Py_EQ) == 1 &&
                                    PyObject_RichCompareBool(scope, self->scope, Py_EQ) == 1);
}

static void note_how(Uses *self, PyObject *method, PyObject *scope)
{
    if (self->method == NULL) {
        keep(&self->method, method);
        keep(&self->scope, scope);
    }
}

/* Reads a use; 0 where it is no plain one. Changes nothing of self but whose uses these are. */
static int read_use(Uses *self, PyObject *use, use_t *found)
{
    PyObject *const names[] = {str_requested, str_peak, str_retained};
    PyObject *method = PyObject_GetAttr(use, str_method), *scope = PyObject_GetAttr(use, str_scope),
             *arguments = PyObject_GetAttr(use, str_arguments), *result = PyObject_GetAttr(use, str_result),
             *quality = PyObject_GetAttr(use, str_quality_rows);
    int plain = method != NULL && scope != NULL && arguments == Py_None && result == Py_None && quality != NULL &&
                PyTuple_CheckExact(quality);
    plain = plain && is_alike(self, method, scope);
    memset(found, 0, FIGURES * sizeof(found[0]));
    for (int i = 0; plain && i < FIGURES; i++) {
        PyObject *value = PyObject_GetAttr(use, names[i]);
        found[i].known = number_of(value, &found[i].value);
        plain = found[i].known >= 0 && (!found[i].known || found[i].value >= 0);
        Py_XDECREF(value);
    }
    for (Py_ssize_t i = 0; plain && i < PyTuple_Size(quality); i++)
        plain = take_row(PyTuple_GetItem(quality, i), found);
    if (plain)
        note_how(self, method, scope);
    Py_XDECREF(method);
    Py_XDECREF(scope);
    Py_XDECREF(arguments);
    Py_XDECREF(result);
    Py_XDECREF(quality);
    return plain;
}

static void figure_add(figure_t *figure, use_t use)
{
    if (!use.known) {
        figure->unseen++;
        return;
    }
    if (use.tag == TAG_EXACT) {
        use.lo = use.hi = use.value;
        use.has_lo = use.has_hi = 1;
    }
    else
        figure->tags |= 1 << use.tag;
    if (!use.has_lo && use.tag == TAG_LOWER) {
        use.has_lo = 1;
        use.lo = use.value;
    }
    if (!use.has_hi && use.tag == TAG_UPPER) {
        use.has_hi = 1;
        use.hi = use.value;
    }
    ns_t lo = use.has_lo ? use.lo : 0, hi = use.has_hi ? use.hi : 0;
    figure->open_below |= !use.has_lo;
    figure->open_above |= !use.has_hi;
    count_into(&figure->values, use.value);
    count_into(&figure->least, lo);
    count_into(&figure->most, hi);
    figure->max = use.value > figure->max ? use.value : figure->max;
    figure->max_least = lo > figure->max_least ? lo : figure->max_least;
    figure->max_most = hi > figure->max_most ? hi : figure->max_most;
}

/* -1 with an exception, and nothing counted. */
static int uses_count(Uses *self, const use_t *found)
{
    for (int i = 0; i < FIGURES; i++)
        if (make_bucket(&self->figures[i].values) < 0 || make_bucket(&self->figures[i].least) < 0 ||
            make_bucket(&self->figures[i].most) < 0)
            return -1;
    self->count++;
    self->measured += found[0].known || found[1].known || found[2].known;
    for (int i = 0; i < FIGURES; i++)
        figure_add(&self->figures[i], found[i]);
    return 0;
}

static PyObject *uses_add(Uses *self, PyObject *use)
{
    use_t found[FIGURES];
    if (!read_use(self, use, found)) {
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    if (uses_count(self, found) < 0)
        return NULL;
    Py_RETURN_TRUE;
}

/* Twin of capture/memory.py Memory._native_use, where blocks have owners; `hidden`: what free lists may hide. */
static void use_of(const held_t *held, ns_t hidden, use_t *found)
{
    ns_t loose = held->requested - held->owned;
    memset(found, 0, FIGURES * sizeof(found[0]));
    found[0] = (use_t){1, TAG_EXACT, 0, 0, held->requested, 0, 0};
    found[1] = loose > 0 ? (use_t){1, TAG_BOUNDED, 1, 1, held->peak, held->peak, held->peak + loose}
                         : (use_t){1, TAG_EXACT, 0, 0, held->peak, 0, 0};
    if (!held->followed)
        return;
    found[2] = loose > 0             ? (use_t){1, TAG_BOUNDED, 1, 1, held->held, held->held, held->held + loose}
               : held->held < hidden ? (use_t){1, TAG_LOWER, 1, 0, held->held, held->held, 0}
                                     : (use_t){1, TAG_EXACT, 0, 0, held->held, 0, 0};
}

/* Whether it was measured as memory is measured now, since `since`, and nothing but memory was. */
static int is_measured_alike(const Request *request, ns_t since)
{
    ns_t began;
    return !is_set(request->sized) && slot_number(request->first_step_ns, &began) == 1 && began >= since;
}

/* A method or a scope that stands for none: memory is not measured. */
static int is_empty(PyObject *text)
{
    return PyUnicode_Check(text) && PyUnicode_GetLength(text) == 0;
}

/* Take what a request used in. 0: those before it were measured by another method. -1: an exception. */
static int take_use(Uses *self, Request *request, PyObject *method, PyObject *scope, ns_t hidden)
{
    held_t held;
    use_t found[FIGURES];
    if (!is_alike(self, method, scope))
        return PyErr_Occurred() ? -1 : 0;
    if (!memory_of(request, &held))
        return 1; /* it was not measured: nothing to count */
    note_how(self, method, scope);
    use_of(&held, hidden, found);
    return uses_count(self, found) < 0 ? -1 : 1;
}

static PyObject *figure_rows(const figure_t *figure)
{
    PyObject *values = rows_of(&figure->values), *least = rows_of(&figure->least), *most = rows_of(&figure->most),
             *found = NULL;
    int tag = TAGS - 1;
    while (tag > 0 && !(figure->tags & 1 << tag))
        tag--;
    if (values != NULL && least != NULL && most != NULL)
        found = Py_BuildValue("(OOOLLLsiiL)", values, least, most, figure->max, figure->max_least, figure->max_most,
                              tag_names[tag], figure->open_below, figure->open_above, figure->unseen);
    Py_XDECREF(values);
    Py_XDECREF(least);
    Py_XDECREF(most);
    return found;
}

static PyObject *uses_take(Uses *self, PyObject *ignored)
{
    if (!self->count)
        Py_RETURN_NONE;
    PyObject *rows = PyList_New(0), *found = NULL;
    for (int i = 0; rows != NULL && i < FIGURES; i++) {
        PyObject *row = figure_rows(&self->figures[i]);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    if (rows != NULL)
        found = Py_BuildValue("(OOLLO)", self->method, self->scope, self->count, self->measured, rows);
    Py_XDECREF(rows);
    if (found != NULL)
        uses_reset(self);
    return found;
}

static int make_use_names(void)
{
    static const name_t names[] = {{&str_requested, "requested"}, {&str_peak, "peak"},         {&str_retained, "retained"},
                 {&str_scope, "scope"},         {&str_quality_rows, "quality"}, {&str_arguments, "arguments"}};
    return INTERN(names);
}

static PyMethodDef uses_methods[] = {
    {"add", (PyCFunction)uses_add, METH_O, "Take a MemoryUse in; False where it is not like those before it."},
    {"take", (PyCFunction)uses_take, METH_NOARGS, "What was added since the last call, or None."},
    {NULL}};
static PyType_Slot uses_slots[] = {{Py_tp_new, uses_new},           {Py_tp_dealloc, uses_dealloc},
                                   {Py_tp_traverse, uses_traverse}, {Py_tp_clear, uses_clear},
                                   {Py_tp_methods, uses_methods},   {0, NULL}};
static PyType_Spec uses_spec = {"mcp_probe.native._core.Uses", sizeof(Uses), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                uses_slots};
