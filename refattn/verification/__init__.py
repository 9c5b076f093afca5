"""What the library is held against: definitions as loops, cases, checks, theorems, and reference vectors of them.

    naive        every definition as slow, plain loops
    cases        every function of the library as one row of one table
    checks       what each case has to pass: loops, the complex step, float32, other array modules, ...
    derivatives  a gradient against the complex step, or finite differences
    rounding     how far each entry of a right result may be off, in any precision
    theorems     what the papers claim as equalities, at random sizes
    vectors      small cases with results, gradients and error bars, for other languages
    strategies   the inputs of all this for hypothesis

Of the library only the command line and `refattn.check`, its door for other people's kernels, import it.
"""
