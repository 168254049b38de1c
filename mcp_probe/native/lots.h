/* ---- Lots: plain requests alike in what they are called, in columns (Python: export/lots.py) ---- */

typedef struct {
    Request *like; /* one of them */
    int measured;  /* their memory is */
    PyObject *raws, *durations, *amounts;
    ns_t first, last; /* arrival, end */
} lot_t;

typedef struct {
    PyObject *scope; /* of memory; empty: it is not measured; None: not in a way that is known here */
    ns_t hidden, since, limit;
    int parts[KNOWN_PARTS], part_count;
    lot_t *lots;
    int used, room;
} sorting_t;

static int is_same_slot(PyObject *a, PyObject *b)
{
    return is_set(a) && is_set(b) ? is_same_text(a, b) : !is_set(a) && !is_set(b);
}

static int is_called_alike(Request *a, Request *b)
{
    PyObject *const pairs[][2] = {{a->name, b->name}, {a->method, b->method}, {a->transport, b->transport},
                                  {a->protocol_version, b->protocol_version}, {a->session_id, b->session_id}};
    int same = 1;
    for (size_t i = 0; same == 1 && i < sizeof(pairs) / sizeof(pairs[0]); i++)
        same = is_same_slot(pairs[i][0], pairs[i][1]);
    return same;
}

/* 1: its span is sampled, and whoever sees its record has to make it. -1: an exception. */
static int lacks_span(Request *r)
{
    if (!is_set(r->span_id) || is_set(r->server_span) || !is_set(r->trace_flags))
        return 0;
    long flags = PyLong_AsLong(r->trace_flags);
    return flags == -1 && PyErr_Occurred() ? -1 : (int)(flags & 1);
}

/* 1: its memory is in `held`. 0: it was not measured. -1: Python must see to it. */
static int memory_in(sorting_t *with, Request *r, held_t *held)
{
    if (with->scope == Py_None || !is_measured_alike(r, with->since))
        return -1;
    return is_empty(with->scope) ? 0 : memory_of(r, held);
}

static PyObject *amounts_of(sorting_t *with, Request *r, const plain_t *plain, const use_t *figures)
{
    int count = with->part_count + (figures == NULL ? 0 : FIGURES);
    PyObject *amounts = PyTuple_New(count);
    for (int i = 0; amounts != NULL && i < count; i++) {
        int part = i < with->part_count ? with->parts[i] : -1;
        const use_t *figure = part < 0 ? &figures[i - with->part_count] : NULL;
        int known = figure == NULL ? is_seen(r, part) : figure->known;
        ns_t value = figure == NULL ? plain->parts[part] : figure->value;
        PyObject *amount = known ? PyLong_FromLongLong(value) : Py_NewRef(Py_None);
        if (amount == NULL || PyTuple_SetItem(amounts, i, amount) < 0)
            Py_CLEAR(amounts);
    }
    return amounts;
}

/* The lot of r, a new one where there is none yet; NULL with an exception. */
static lot_t *lot_of(sorting_t *with, Request *r, int measured)
{
    for (int i = with->used - 1; i >= 0; i--) {
        int same = with->lots[i].measured == measured ? is_called_alike(with->lots[i].like, r) : 0;
        if (same)
            return same < 0 ? NULL : &with->lots[i];
    }
    if (make_room((void **)&with->lots, with->used, &with->room, sizeof(lot_t)) < 0)
        return NULL;
    lot_t *lot = &with->lots[with->used];
    *lot = (lot_t){r, measured, PyList_New(0), PyList_New(0), PyList_New(0), INT64_MAX, INT64_MIN};
    if (lot->raws == NULL || lot->durations == NULL || lot->amounts == NULL) {
        Py_XDECREF(lot->raws);
        Py_XDECREF(lot->durations);
        Py_XDECREF(lot->amounts);
        return NULL;
    }
    with->used++;
    return lot;
}

/* 1: it is in a lot. 0: its record says more, or is wanted. -1: an exception. */
static int sort_one(sorting_t *with, Request *r)
{
    plain_t plain;
    held_t held;
    use_t figures[FIGURES];
    ns_t end = 0;
    if (slot_number(r->end_ns, &end) != 1 || is_set(r->sent_ns) || PyUnicode_Compare(r->outcome, ok_outcome) != 0 ||
        (PyUnicode_Compare(r->kind, kind_request) != 0 && PyUnicode_Compare(r->kind, kind_notification) != 0))
        return PyErr_Occurred() ? -1 : 0;
    if (lacks_span(r) || plain_of(r, end, &plain) != 1)
        return PyErr_Occurred() ? -1 : 0;
    int measured = end - plain.arrival < with->limit ? memory_in(with, r, &held) : -1;
    if (measured < 0)
        return 0;
    if (measured)
        use_of(&held, with->hidden, figures);
    lot_t *lot = lot_of(with, r, measured);
    PyObject *duration = lot == NULL ? NULL : PyLong_FromLongLong(at_least_0(end - plain.arrival)),
             *amounts = duration == NULL ? NULL : amounts_of(with, r, &plain, measured ? figures : NULL);
    int failed = amounts == NULL || PyList_Append(lot->raws, (PyObject *)r) < 0 ||
                 PyList_Append(lot->durations, duration) < 0 || PyList_Append(lot->amounts, amounts) < 0;
    Py_XDECREF(duration);
    Py_XDECREF(amounts);
    if (failed)
        return -1;
    lot->first = plain.arrival < lot->first ? plain.arrival : lot->first;
    lot->last = end > lot->last ? end : lot->last;
    return 1;
}

static int name_parts(sorting_t *with, PyObject *names)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int part = PyUnicode_Check(name) && i < KNOWN_PARTS && budget_shape.type != NULL ? part_named(name) : -1;
        if (part < 0) {
            PyErr_Format(PyExc_ValueError, "%R is no part of a budget", name);
            return -1;
        }
        with->parts[with->part_count++] = part;
    }
    return 0;
}

/* Gives the columns away. */
static PyObject *lot_rows(sorting_t *with)
{
    PyObject *rows = PyList_New(0);
    for (int i = 0; rows != NULL && i < with->used; i++) {
        lot_t *lot = &with->lots[i];
        PyObject *row = Py_BuildValue("(OOOOLL)", lot->raws, lot->measured ? with->scope : Py_None, lot->durations,
                                      lot->amounts, lot->first, lot->last);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

/* lots(batch, parts, limit, scope or None, hidden, since):
 * (those whose records are wanted, [(requests, scope or None, durations, amounts, first arrival, last end), ...]). */
static PyObject *core_lots(PyObject *module, PyObject *args)
{
    PyObject *batch, *parts, *rest = NULL, *rows = NULL, *found = NULL;
    sorting_t with = {0};
    if (!PyArg_ParseTuple(args, "O!O!LOLL", &PyList_Type, &batch, &PyTuple_Type, &parts, &with.limit, &with.scope,
                          &with.hidden, &with.since))
        return NULL;
    int failed = name_parts(&with, parts) < 0 || (rest = PyList_New(0)) == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(batch); i++) {
        Request *r = request_arg(PyList_GetItem(batch, i));
        int sorted = r == NULL ? -1 : sort_one(&with, r);
        failed = sorted < 0 || (sorted == 0 && PyList_Append(rest, (PyObject *)r) < 0);
    }
    if (!failed && (rows = lot_rows(&with)) != NULL)
        found = Py_BuildValue("(OO)", rest, rows);
    for (int i = 0; i < with.used; i++) {
        Py_DECREF(with.lots[i].raws);
        Py_DECREF(with.lots[i].durations);
        Py_DECREF(with.lots[i].amounts);
    }
    PyMem_Free(with.lots);
    Py_XDECREF(rest);
    Py_XDECREF(rows);
    return found;
}
