# Completion of isotone for fish; see "isotone completion fish --help".
function __isotone_complete
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    set -l lines ($words[1] complete -- $words[2..-1] "$cur" 2>/dev/null)
    set -l lead ""
    set -l rest "$cur"
    if string match -q -- '--*=*' "$cur"
        set lead (string replace -r '=.*' '=' -- "$cur")
        set rest (string replace -r '^[^=]*=' '' -- "$cur")
    end
    switch "$lines[1]"
        case files
            for path in (__fish_complete_path "$rest")
                printf '%s%s\n' $lead $path
            end
        case dirs
            for path in (__fish_complete_directories "$rest" "")
                printf '%s%s\n' $lead $path
            end
        case words
            set -e lines[1]
            printf '%s\n' $lines
    end
end
complete -c isotone -f -a '(__isotone_complete)'
