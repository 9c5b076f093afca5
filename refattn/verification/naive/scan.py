"""SCAN's commands interpreted word by word, by the rules of Lake & Baroni 2018, figure 7."""

TURN = {"left": ["I_TURN_LEFT"], "right": ["I_TURN_RIGHT"]}


def interpret(words):
    """The actions of a command, a list of words.

    >>> interpret("jump twice after turn opposite left".split())
    ['I_TURN_LEFT', 'I_TURN_LEFT', 'I_JUMP', 'I_JUMP']
    """
    for joint in "and", "after":
        if joint in words:
            i = words.index(joint)
            first, second = interpret(words[:i]), interpret(words[i + 1:])
            return first + second if joint == "and" else second + first
    if words[-1] == "thrice":
        return interpret(words[:-1]) + interpret(words[:-1]) + interpret(words[:-1])
    if words[-1] == "twice":
        return interpret(words[:-1]) + interpret(words[:-1])
    verb = [] if words[0] == "turn" else [f"I_{words[0].upper()}"]
    if len(words) == 1:
        return verb
    turn = TURN[words[-1]]
    if words[1] == "opposite":
        return turn + turn + verb
    return (turn + verb) * (4 if words[1] == "around" else 1)
