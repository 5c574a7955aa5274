# Prints a header without the last field of each struct and its initialiser: the header of a version before. Comments of
# structs are dropped.

function without_comments(text,    begin, end) {
    while (begin = index(text, "/*")) {
        end = index(substr(text, begin + 2), "*/")
        text = substr(text, 1, begin - 1) substr(text, begin + end + 3)
    }
    return text
}

# A field may declare several: a, b. Pointers to functions have commas of their own.
function without_last_field(text) {
    sub(/;[^;]*$/, "", text)
    if (!match(text, /;[^;]*$/))
        match(text, /{[^;]*$/)
    last = substr(text, RSTART)
    rest = substr(text, 1, RSTART - 1)
    if (index(last, ",") && !index(last, "("))
        sub(/,[^,]*$/, "", last)
    else
        last = substr(last, 1, 1)
    return rest last (last ~ /^.$/ ? "" : ";")
}

/^typedef struct ith_[a-z_]+ {$/ { inside = 1; text = "" }
inside && /^} ith_/ {
    print without_last_field(without_comments(text))
    inside = 0
}
inside { text = text $0 "\n"; next }

/^#define ITH_[A-Z_0-9]+_INIT/ { macro = ""; defining = 1 }
defining {
    line = $0
    going_on = sub(/ *\\$/, "", line)
    macro = macro line " "
    if (!going_on) {
        if (!sub(/, *{[^{}]*} *} *$/, " }", macro))
            sub(/, *[^,{}]+} *$/, " }", macro)
        print macro
        defining = 0
    }
    next
}
{ print }
