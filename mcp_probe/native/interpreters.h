/* ---- which interpreter's GIL is ours ---- */

static int many_gils;
static PyInterpreterState *main_interpreter,
    **interpreters; /* the latter: their head, where the interpreter keeps it */

static inline PyThreadState *current_state(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyThreadState_GetUnchecked();
#else
    return _PyThreadState_UncheckedGet();
#endif
}

static int __attribute__((noinline)) is_main_gil_ours(void)
{
    if (PyInterpreterState_Head() == main_interpreter)
        return 1;
    PyThreadState *state = current_state();
    return state != NULL && PyThreadState_GetInterpreter(state) == main_interpreter;
}

/* For whoever is known to hold a GIL: whether it is the main interpreter's. A new interpreter goes
 * to the head. */
static inline int under_main_gil(void)
{
    return !many_gils || __atomic_load_n(interpreters, __ATOMIC_RELAXED) == main_interpreter ||
           is_main_gil_ours();
}
