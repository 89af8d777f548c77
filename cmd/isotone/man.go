package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// manCmd writes the manual pages from the definition of the command line: isotone(1), and
// isotone-COMMAND(1) for each command with all that is below it. Packages contain them.
type manCmd struct {
	Dir string `name:"dir" required:"" placeholder:"DIR" complete:"dirs" help:"Directory to write the pages to, which must exist."`
}

// Run writes the pages.
func (c *manCmd) Run(app *kong.Kong) error {
	pages := map[string]string{"isotone": manOverview(app.Model.Node)}
	for _, command := range visible(app.Model.Node) {
		pages["isotone-"+command.Name] = manPage(command)
	}
	for name, page := range pages {
		if err := os.WriteFile(filepath.Join(c.Dir, name+".1"), []byte(page), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// visible returns the commands of a node that help shows.
func visible(n *kong.Node) (commands []*kong.Node) {
	for _, child := range n.Children {
		if !child.Hidden && child.Type == kong.CommandNode {
			commands = append(commands, child)
		}
	}
	return commands
}

// manual is a page in the macros of man(7).
type manual struct{ strings.Builder }

// manDate returns the date of the commit, or nothing.
func manDate() string {
	t, err := time.Parse(time.RFC3339, readBuildVersion().Date)
	if err != nil {
		return ""
	}
	return t.UTC().Format(time.DateOnly)
}

func newManual(name, summary string) *manual {
	m := &manual{}
	fmt.Fprintf(m, ".TH %s 1 \"%s\" \"isotone %s\" \"Isotone\"\n", roff(strings.ToUpper(name)), manDate(), roff(version))
	m.section("NAME")
	fmt.Fprintf(m, "%s \\- %s\n", roff(name), roff(strings.TrimSuffix(summary, ".")))
	return m
}

func (m *manual) section(title string)    { fmt.Fprintf(m, ".SH %s\n", title) }
func (m *manual) subsection(title string) { fmt.Fprintf(m, ".SS \"%s\"\n", roff(title)) }

// synopsis writes a command with what follows it.
func (m *manual) synopsis(n *kong.Node) {
	path := n.Path() // without the name of the program, as in the summary
	fmt.Fprintf(m, ".B %s\n", roff(n.FullPath()))
	if rest := strings.TrimSpace(strings.TrimPrefix(n.Summary(), path)); rest != "" {
		fmt.Fprintln(m, roff(rest))
	}
}

// text writes paragraphs. Indented lines are examples.
func (m *manual) text(text string) {
	example := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		indented := strings.HasPrefix(line, "  ")
		switch {
		case indented && !example:
			m.WriteString(".RS 4\n.nf\n")
		case !indented && example:
			m.WriteString(".fi\n.RE\n")
		}
		example = indented
		if line == "" {
			m.WriteString(".PP\n")
			continue
		}
		fmt.Fprintln(m, roff(strings.TrimSpace(line)))
	}
	if example {
		m.WriteString(".fi\n.RE\n")
	}
}

// item writes a term in bold with its value in italics, and the text below it.
func (m *manual) item(term, value, text string) {
	fmt.Fprintf(m, ".TP\n\\fB%s\\fR", roff(term))
	if value != "" {
		fmt.Fprintf(m, "\\fI%s\\fR", roff(value))
	}
	m.WriteByte('\n')
	fmt.Fprintln(m, roff(text))
}

// options writes the arguments and flags of a command.
func (m *manual) options(n *kong.Node) {
	for _, arg := range n.Positional {
		m.item(arg.Summary(), "", arg.Help)
	}
	for _, flag := range n.Flags {
		if !flag.Hidden {
			m.flag(flag)
		}
	}
}

func (m *manual) flag(flag *kong.Flag) {
	term, value := "--"+flag.Name, ""
	if flag.Short != 0 {
		term = "-" + string(flag.Short) + ", " + term
	}
	switch {
	case flag.Tag.Negatable != "":
		term = strings.Replace(term, "--", "--[no-]", 1)
	case !flag.IsBool():
		value = "=" + strings.ReplaceAll(flag.FormatPlaceHolder(), ",...,...", ",...")
	}
	text := flag.Help
	for _, env := range flag.Envs {
		text += " ($" + env + ")"
	}
	m.item(term, value, text)
}

// manPage returns the page of one command.
func manPage(n *kong.Node) string {
	m := newManual("isotone-"+n.Name, n.Help)
	m.section("SYNOPSIS")
	leaves := n.Leaves(true)
	if len(leaves) == 0 {
		leaves = []*kong.Node{n}
	}
	for i, leaf := range leaves {
		if i > 0 {
			m.WriteString(".br\n")
		}
		m.synopsis(leaf)
	}
	m.section("DESCRIPTION")
	m.text(n.Help + "\n\n" + n.Detail)
	m.section("OPTIONS")
	m.options(n)
	for _, leaf := range leaves {
		if leaf == n {
			continue
		}
		m.subsection(leaf.FullPath())
		m.text(leaf.Help + "\n\n" + leaf.Detail)
		m.options(leaf)
	}
	m.exitStatus()
	m.section("SEE ALSO")
	m.WriteString(".BR isotone (1)\n")
	return m.String()
}

// manOverview returns the page of the program.
func manOverview(app *kong.Node) string {
	m := newManual("isotone", "timestamp oracle and ID service")
	m.section("SYNOPSIS")
	m.WriteString(".B isotone\n.I COMMAND\n[flags]\n")
	m.section("DESCRIPTION")
	m.text(app.Help)
	m.section("COMMANDS")
	commands := visible(app)
	for _, n := range commands {
		m.item("isotone "+n.Name, "", n.Help)
	}
	m.section("FILES")
	m.text("The packages for Linux bring a service of systemd, isotone.service.")
	m.item("/etc/isotone/isotone.env", "", "The settings of the service, as environment variables.")
	m.item("/var/lib/isotone", "", "The data of the node. No package removes it.")
	m.exitStatus()
	m.section("SEE ALSO")
	names := make([]string, len(commands))
	for i, n := range commands {
		names[i] = ".BR " + roff("isotone-"+n.Name) + " (1)"
	}
	slices.Sort(names)
	fmt.Fprintln(m, strings.Join(names, ",\n"))
	return m.String()
}

func (m *manual) exitStatus() {
	m.section("EXIT STATUS")
	m.item("0", "", "Success.")
	m.item(fmt.Sprint(exitFailure), "", "A failure, or a check that found a problem.")
	m.item(fmt.Sprint(exitUsage), "", "An invalid command line or setting.")
}

// roffSpecial are the characters that mean something else in roff, or are not what one can copy
// into a shell.
var roffSpecial = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`,
	"–", `\(en`, "×", `\(mu`, "→", `\(->`, "…", `\&...`)

// roff returns a line of text that stands for itself: at its beginning a dot would be a macro.
func roff(text string) string {
	text = roffSpecial.Replace(text)
	if strings.HasPrefix(text, ".") {
		return `\&` + text
	}
	return text
}
