# Completion of isotone for bash; see "isotone completion bash --help".
_isotone() {
	local command=${1/#\~\//$HOME/} cur=${COMP_WORDS[COMP_CWORD]} kind line
	COMPREPLY=()
	{
		read -r kind || return 0
		case $cur in [=:]) cur= ;; esac
		case $kind in
		files | dirs)
			compopt -o filenames 2>/dev/null
			local action=-f
			[[ $kind == dirs ]] && action=-d
			case $cur in --*=*) cur=${cur#*=} ;; esac
			while IFS= read -r line; do
				COMPREPLY+=("$line")
			done < <(compgen "$action" -- "$cur")
			;;
		words)
			while IFS= read -r line; do
				COMPREPLY+=("${line%%$'\t'*}")
			done
			# What ends in a colon goes on.
			[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace 2>/dev/null
			;;
		esac
	} < <("$command" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	return 0
}
complete -F _isotone isotone
