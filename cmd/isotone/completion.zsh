#compdef isotone
# Completion of isotone for zsh; see "isotone completion zsh --help".
_isotone() {
	local -a lines items
	local line
	lines=("${(@f)$("${words[1]/#\~\//$HOME/}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	case ${lines[1]} in
	files | dirs)
		[[ $PREFIX == --*=* ]] && compset -P '*='
		if [[ ${lines[1]} == dirs ]]; then
			_files -/
		else
			_files
		fi
		;;
	words)
		for line in "${(@)lines[2,-1]}"; do
			items+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
		done
		_describe isotone items
		;;
	esac
}
if [[ ${funcstack[1]} == _isotone ]]; then
	_isotone "$@"
else
	compdef _isotone isotone
fi
