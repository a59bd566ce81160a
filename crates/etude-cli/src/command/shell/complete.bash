_etude_complete() {
    local IFS=$'\013' line=${COMP_LINE:0:COMP_POINT} rest trimmed current breaks at start=0 prefix='' space=true
    local -a words=()
    # Bash splits words at `=`, `:` and `@`. They are joined again, because etude takes them whole.
    rest=$line
    for (( at = 0; at <= COMP_CWORD; at++ )); do
        trimmed=${rest#"${rest%%[![:space:]]*}"}
        if (( at > 0 )) && [[ $trimmed == "$rest" ]]; then
            words[${#words[@]}-1]+=${COMP_WORDS[at]}
        else
            start=$(( ${#line} - ${#trimmed} ))
            words+=("${COMP_WORDS[at]}")
        fi
        rest=${trimmed#*"${COMP_WORDS[at]}"}
    done
    current=${line:start}
    breaks=${COMP_WORDBREAKS//[^=:@]/}
    case $current in
        [\"\']*) current=${current:1} ;;
        *)
            current=${current//\\/}
            [[ -z $breaks ]] || prefix=${current%"${current##*[$breaks]}"}
            ;;
    esac
    words[${#words[@]}-1]=$current
    if compopt +o nospace 2> /dev/null; then
        space=false
    fi
    COMPREPLY=()
    read -r -d '' -a COMPREPLY < <(
        _CLAP_IFS=$IFS \
        _CLAP_COMPLETE_INDEX=$(( ${#words[@]} - 1 )) \
        _CLAP_COMPLETE_COMP_TYPE=$COMP_TYPE \
        _CLAP_COMPLETE_SPACE=$space \
        COMPLETE=bash \
        etude -- "${words[@]}" 2> /dev/null
    )
    for at in "${!COMPREPLY[@]}"; do
        COMPREPLY[at]=${COMPREPLY[at]#"$prefix"}
        # Readline quotes names of files.
        if [[ ${COMPREPLY[at]} == *[!A-Za-z0-9_./+,-]* && -e ${COMPREPLY[at]} ]]; then
            compopt -o filenames 2> /dev/null
        fi
    done
    if [[ $space == false && ${COMPREPLY-} =~ [=/:]$ ]]; then
        compopt -o nospace
    fi
}
if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -o nospace -o bashdefault -o nosort -F _etude_complete etude
else
    complete -o nospace -o bashdefault -F _etude_complete etude
fi
