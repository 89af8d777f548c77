// Package doctor judges what was measured of a node's machine and of a cluster: each check says
// ok, warning or problem, what was found and, if it is not ok, what to do.
//
// [Judge] is pure: measurements in, findings out. Package internal/inspect/doctor/probe measures, and
// cmd/isotone prints. All functions are safe for concurrent use.
package doctor

import (
	"fmt"
	"time"
)

// Status is the result of one check.
type Status string

// The results of a check. A warning is worth a look, a problem keeps something from working or
// is about to.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Problem Status = "problem"
)

// Finding is the result of one check of one subject.
type Finding struct {
	// Check is the name of the check, one word; Subject is what was checked, such as a setting,
	// a node or a pair of nodes.
	Check   string `json:"check"`
	Subject string `json:"subject,omitempty"`
	Status  Status `json:"status"`
	// Found is one line.
	Found string `json:"found"`
	// Do is one line, empty if and only if Status is [OK].
	Do string `json:"do,omitempty"`
}

// Report has the findings of all checks.
type Report struct {
	At       time.Time `json:"at"`
	Findings []Finding `json:"findings"`
	OK       int       `json:"ok"`
	Warnings int       `json:"warnings"`
	Problems int       `json:"problems"`
}

// Judge judges everything that was measured.
func Judge(m *Measurements) *Report {
	r := &Report{At: m.At, Findings: []Finding{}}
	var j findings
	if m.Local != nil {
		j.local(m)
	}
	j.cluster(m)
	for _, f := range j {
		switch f.Status {
		case OK:
			r.OK++
		case Warning:
			r.Warnings++
		default:
			r.Problems++
		}
		r.Findings = append(r.Findings, f)
	}
	return r
}

// findings collects findings in the order in which they are shown.
type findings []Finding

func (j *findings) ok(check, subject, format string, args ...any) {
	*j = append(*j, Finding{Check: check, Subject: subject, Status: OK, Found: fmt.Sprintf(format, args...)})
}

// add adds a finding that is not ok. do says what to do.
func (j *findings) add(s Status, check, subject, found, do string) {
	*j = append(*j, Finding{Check: check, Subject: subject, Status: s, Found: found, Do: do})
}

// node is the subject for a node.
func node(id uint64) string { return fmt.Sprintf("node %d", id) }
