#compdef etude
_etude() {
    emulate -L zsh
    local candidate value
    local -i width=0
    local -a found plain closed closed_lines open open_lines lines
    # The protocol of fish: a value, a tab, and a description without line breaks.
    found=("${(@f)$(COMPLETE=fish etude -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2> /dev/null)}")
    # Options follow a dash, unless there is nothing else.
    plain=("${(@)found:#-*}")
    if [[ $PREFIX != -* && -n ${(j::)plain} ]]; then
        found=("${(@)plain}")
    fi
    for candidate in "${(@)found}"; do
        value=${candidate%%$'\t'*}
        (( ${#value} <= width )) || width=${#value}
    done
    for candidate in "${(@)found}"; do
        value=${candidate%%$'\t'*}
        [[ -n $value ]] || continue
        if [[ $candidate == *$'\t'* ]]; then
            lines=(-l)
            candidate="${(r:width:)value}  -- ${candidate#*$'\t'}"
        fi
        candidate=${candidate[1,${COLUMNS:-80}-1]}
        # More text follows a parameter and a directory, so no space does.
        if [[ $value == *[=/] ]]; then
            open+=("$value")
            open_lines+=("$candidate")
        else
            closed+=("$value")
            closed_lines+=("$candidate")
        fi
    done
    (( ! ${#closed} )) || compadd $lines -V etude -d closed_lines -a closed
    (( ! ${#open} )) || compadd $lines -V etude -S '' -d open_lines -a open
    (( ${#found} ))
}

# As a file of completions, this text is the function itself.
if [[ ${funcstack[1]-} == _etude ]]; then
    _etude "$@"
else
    compdef _etude etude
fi
