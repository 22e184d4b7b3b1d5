# SPDX-License-Identifier: Apache-2.0
# bash completion of Tutti's programs. Subcommands, options and their values are what the programs' own --help says.
#
# tutti's --help as lines "KIND NAME KIND-OF-ARGUMENT CHOICES": KIND is option, positional or subcommand; the argument is none,
# file or text; CHOICES are separated by commas, "-" is none.
_tutti_described() {
  "$@" --help 2>/dev/null </dev/null | awk '
    function flush(   i, n, names, argument, choices, list) {
      if (spec == "") return
      argument = kind == "option" ? "none" : "text"
      if (kind == "option" && spec ~ /(TEXT|UINT|INT|FLOAT)|[A-Z][A-Z_]*:/) argument = "text"
      if ((spec " " text) ~ /:(FILE|DIR|PATH)|FOLDER|[Ff]ile|[Ff]older|\.json|SVG/ && argument == "text") argument = "file"
      choices = "-"
      if (match(spec, /\{[^}]*\}/)) {
        choices = substr(spec, RSTART + 1, RLENGTH - 2)
        gsub(/->[^,]*/, "", choices)
      } else if (argument != "none") {
        list = text
        sub(/ *[(;].*/, "", list)
        gsub(/ \.\.\. |,? or /, ", ", list)
        if (list ~ /^[a-z0-9_]+(, [a-z0-9_]+)(, [a-z0-9_]+)+$/) { choices = list; gsub(/, /, ",", choices) }
      }
      if (choices != "-") argument = "text"
      split(spec, names, /[ :]/)
      n = split(names[1], list_of, ",")
      for (i = 1; i <= n; ++i) print kind, list_of[i], argument, choices
      spec = ""
    }
    /^[A-Za-z].*:$/ { flush(); kind = /^Subcommands/ ? "subcommand" : /^Positionals/ ? "positional" : /^Options/ ? "option" : ""; next }
    kind == "" { next }
    /^  [^ ]/ {
      flush()
      spec = substr($0, 3); text = ""
      if (length($0) > 30 && substr($0, 29, 1) ~ /[ ]/) { text = substr($0, 31); spec = substr($0, 3, 27) }
      else if (length($0) > 30 && substr($0, 30, 1) == " ") { text = substr($0, 31); spec = substr($0, 3, 28) }
      next
    }
    /^ +[^ ]/ { sub(/^ +/, ""); text = text (text == "" ? "" : " ") $0; next }
    { flush(); kind = "" }
    END { flush() }'
}

_tutti_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

# _tutti_value WORD ARGUMENT CHOICES: completes the value of an option, or a positional.
_tutti_value() {
  if [[ $3 != - ]]; then
    mapfile -t COMPREPLY < <(compgen -W "${3//,/ }" -- "$1")
  elif [[ $2 == file ]]; then
    _tutti_files "$1"
  fi
}

_tutti() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]/#\~/$HOME} table i
  local kind name argument choices expects=none
  COMPREPLY=()
  # --option=value is three words to bash.
  [[ $word == = ]] && word=
  [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}
  [[ ${COMP_WORDS[COMP_CWORD]} == = ]] && before=${COMP_WORDS[COMP_CWORD - 1]}
  local -a path=() positionals=()
  table=$(_tutti_described "$program")
  for ((i = 1; i < COMP_CWORD; i++)); do
    name=${COMP_WORDS[i]}
    if [[ $expects != none || $name == = ]]; then
      [[ $name == = ]] || expects=none
    elif [[ $name == -* ]]; then
      expects=$(awk -v name="$name" '$1 == "option" && $2 == name {print $3; exit}' <<<"$table")
      expects=${expects:-none}
    elif grep -q "^subcommand $name " <<<"$table"; then
      path+=("$name")
      table=$(_tutti_described "$program" "${path[@]}")
    elif [[ ${program##*/} == tuttirun ]]; then
      # The rest is another program's command line.
      if declare -F _command_offset >/dev/null; then _command_offset "$i"; else _tutti_files "$word"; fi
      return
    else
      positionals+=("$name")
    fi
  done

  if [[ $before == -* ]]; then
    read -r kind name argument choices < <(awk -v name="$before" '$1 == "option" && $2 == name' <<<"$table")
    if [[ ${argument:-none} != none ]]; then
      _tutti_value "$word" "$argument" "$choices"
      return
    fi
  fi
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(awk '$1 == "option" {print $2}' <<<"$table")" -- "$word")
  elif [[ ${program##*/} == tuttirun ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word")
  else
    local -a subcommands=()
    read -r kind name argument choices < <(grep ^positional <<<"$table" | sed -n "$((${#positionals[@]} + 1))p")
    ((${#positionals[@]})) || mapfile -t subcommands < <(awk '$1 == "subcommand" {print $2}' <<<"$table")
    if [[ ${#subcommands[@]} -gt 0 ]]; then
      [[ ${choices:--} == - ]] || subcommands+=("${choices//,/ }")
      mapfile -t COMPREPLY < <(compgen -W "${subcommands[*]}" -- "$word")
    elif [[ -n ${name-} ]]; then
      _tutti_value "$word" "$argument" "$choices"
    else
      _tutti_files "$word"
    fi
  fi
} && complete -F _tutti tuttirun tutti-perf tutti-info tutti-doctor tutti-plan tutti-trace tutti-conform
