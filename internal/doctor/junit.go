package doctor

import (
	"encoding/xml"
	"io"
	"strings"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// The elements of JUnit's XML, as CI systems read it.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string      `xml:"name,attr"`
		Class   string      `xml:"classname,attr"`
		Failure *junitWords `xml:"failure,omitempty"`
		Skipped *junitWords `xml:"skipped,omitempty"`
		Out     string      `xml:"system-out,omitempty"`
	}
	junitWords struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the diagnosis as XML for CI systems: a test case for each link. What
// there is nothing of, and what could not be looked at, is skipped.
func (d *Diagnosis) WriteJUnit(w io.Writer) error {
	suite := junitSuite{Name: "lpuctl doctor", Tests: len(d.Steps)}
	for i := range d.Steps {
		s := &d.Steps[i]
		c := junitCase{Name: string(s.Link), Class: "doctor", Out: s.Says}
		switch s.State {
		case Broken, Follows:
			suite.Failures++
			c.Failure = &junitWords{s.Says, s.text()}
			if first := s.Findings.FirstError(); first != nil {
				c.Failure.Message = first.Message
			}
		case Absent, Unknown:
			suite.Skipped++
			c.Skipped = &junitWords{Message: s.text()}
		case Warned:
			c.Out = s.text()
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// text is all that a step says, a line each.
func (s *Step) text() string {
	lines := []string{}
	if s.Says != "" {
		lines = append(lines, s.Says)
	}
	for _, f := range s.Findings {
		if f.Severity != finding.Note {
			lines = append(lines, f.String(), "remedy: "+f.Remedy)
		}
	}
	for _, u := range s.Unseen {
		lines = append(lines, u.String())
	}
	return strings.Join(lines, "\n")
}
