/* ---- Row: exponential histograms that count one value each of every request (twin: export/histograms.py PythonRow) ---- */

enum { MAX_SCALE = 5, MOST_BUCKETS = 160 }; /* export/histograms.py */

typedef struct {
    PyObject *held; /* bytes that hold the bounds */
    const ns_t *bounds;
    Py_ssize_t bound_count;
    ns_t count, zeros, total, min, max; /* total: of values whose sum fits, 292 years between two looks */
    int first, scale, low, high; /* low..high: buckets in use; none where all values were 0 */
    unsigned int counts[MOST_BUCKETS]; /* of bucket i at i modulo MOST_BUCKETS */
} exponential_t;

typedef struct {
    PyObject_HEAD
    Py_ssize_t size;
    exponential_t *parts;
} Row;

static void exponential_reset(exponential_t *part)
{
    part->count = part->zeros = part->total = part->max = 0;
    part->min = ABSENT;
    part->scale = MAX_SCALE;
    part->low = part->high = 0;
    memset(part->counts, 0, sizeof(part->counts));
}

static unsigned int *bucket_at(exponential_t *part, int index)
{
    int place = index % MOST_BUCKETS;
    return &part->counts[place < 0 ? place + MOST_BUCKETS : place];
}

static void halve_resolution(exponential_t *part)
{
    exponential_t old = *part;
    memset(part->counts, 0, sizeof(part->counts));
    for (int index = part->low; index <= part->high; index++)
        *bucket_at(part, index >> 1) += *bucket_at(&old, index);
    part->low >>= 1;
    part->high >>= 1;
    part->scale--;
}

static void exponential_add(exponential_t *part, ns_t value)
{
    part->count++;
    if (value <= 0) {
        part->zeros++;
        part->min = 0;
        return;
    }
    int fresh = part->count == part->zeros + 1;
    part->total += value;
    part->max = value > part->max ? value : part->max;
    part->min = part->min == ABSENT || value < part->min ? value : part->min;
    Py_ssize_t low = 0, high = part->bound_count;
    while (low < high) { /* the first bound that is not below it */
        Py_ssize_t middle = (low + high) / 2;
        if (part->bounds[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    int fine = part->first + (int)low - 1, index = fine >> (MAX_SCALE - part->scale);
    if (fresh)
        part->low = part->high = index;
    while ((index > part->high ? index : part->high) - (index < part->low ? index : part->low) >= MOST_BUCKETS) {
        halve_resolution(part);
        index = fine >> (MAX_SCALE - part->scale);
    }
    part->low = index < part->low ? index : part->low;
    part->high = index > part->high ? index : part->high;
    ++*bucket_at(part, index);
}

static void row_dealloc(Row *self)
{
    PyTypeObject *type = Py_TYPE(self);
    for (Py_ssize_t i = 0; i < self->size; i++)
        Py_XDECREF(self->parts[i].held);
    PyMem_Free(self->parts);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *row_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *ladders;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &ladders))
        return NULL;
    Row *self = (Row *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_ssize_t size = PyList_Size(ladders);
    self->parts = PyMem_Calloc(size ? size : 1, sizeof(exponential_t));
    if (self->parts == NULL) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    for (; self->size < size; self->size++) {
        exponential_t *part = &self->parts[self->size];
        PyObject *bounds;
        char *bytes;
        Py_ssize_t length;
        if (!PyArg_ParseTuple(PyList_GetItem(ladders, self->size), "iS", &part->first, &bounds) ||
            PyBytes_AsStringAndSize(bounds, &bytes, &length) < 0) {
            Py_DECREF((PyObject *)self);
            return NULL;
        }
        part->held = Py_NewRef(bounds);
        part->bounds = (const ns_t *)bytes;
        part->bound_count = length / (Py_ssize_t)sizeof(ns_t);
        exponential_reset(part);
    }
    return (PyObject *)self;
}

static PyObject *row_add(Row *self, PyObject *values)
{
    if (!PyTuple_CheckExact(values) || PyTuple_Size(values) != self->size) {
        PyErr_Format(PyExc_TypeError, "a row takes a tuple of %zd numbers or None", self->size);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < self->size; i++) {
        PyObject *value = PyTuple_GetItem(values, i);
        if (value == Py_None)
            continue;
        ns_t number = PyLong_AsLongLong(value);
        if (number == -1 && PyErr_Occurred())
            return NULL;
        exponential_add(&self->parts[i], number);
    }
    Py_RETURN_NONE;
}

static PyObject *exponential_rows(exponential_t *part)
{
    PyObject *counts = PyDict_New();
    for (int index = part->low; counts != NULL && part->count > part->zeros && index <= part->high; index++) {
        unsigned int found = *bucket_at(part, index);
        if (!found)
            continue;
        PyObject *key = PyLong_FromLong(index), *count = PyLong_FromUnsignedLong(found);
        if (key == NULL || count == NULL || PyDict_SetItem(counts, key, count) < 0)
            Py_CLEAR(counts);
        Py_XDECREF(key);
        Py_XDECREF(count);
    }
    if (counts == NULL)
        return NULL;
    PyObject *least = part->min == ABSENT ? Py_NewRef(Py_None) : PyLong_FromLongLong(part->min);
    return Py_BuildValue("(iLLLNLN)", part->scale, part->zeros, part->count, part->total, least, part->max, counts);
}

static PyObject *row_take(Row *self, PyObject *ignored)
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < self->size; i++) {
        PyObject *part = exponential_rows(&self->parts[i]);
        if (part == NULL || PyList_Append(found, part) < 0)
            Py_CLEAR(found);
        Py_XDECREF(part);
    }
    for (Py_ssize_t i = 0; found != NULL && i < self->size; i++)
        exponential_reset(&self->parts[i]);
    return found;
}

static PyMethodDef row_methods[] = {
    {"add", (PyCFunction)row_add, METH_O, "Count one value, or None, in each histogram."},
    {"take", (PyCFunction)row_take, METH_NOARGS,
     "[(scale, zeros, count, total, min or None, max, {bucket: count}), ...] since the last call."},
    {NULL}};
static PyType_Slot row_slots[] = {{Py_tp_new, row_new}, {Py_tp_dealloc, row_dealloc}, {Py_tp_methods, row_methods}, {0, NULL}};
static PyType_Spec row_spec = {"mcp_probe.native._core.Row", sizeof(Row), 0, Py_TPFLAGS_DEFAULT, row_slots};
