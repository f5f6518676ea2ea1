package ring

import "fmt"

// Severity says whether a finding makes a table unusable.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"   // the table cannot be used
	SeverityWarning Severity = "warning" // it can, and somebody should look at the cables
)

// Finding is one thing that is wrong or notable about a ring table. The codes:
//
//	E_SIZE         too large to be a ring table
//	E_SYNTAX       not JSON or YAML, or nested too deeply
//	E_TRAILING     something follows the table, a second document for instance
//	E_DUPKEY       a key stands twice in one object
//	E_KEY          an unknown key (own form only), or one that has to be there is missing
//	E_TYPE         a value of the wrong kind, or a document that is no ring table
//	E_EMPTY        no links between several cards, or nothing at all
//	E_ALLZERO      every value is 0: the tool that wrote the table did not finish
//	E_UNKNOWN      an id that no card has
//	E_COUNT        the number of cards is not the one stated or present
//	E_SELF         a link from a card to itself
//	E_DUPLINK      a link stands twice
//	E_ASYM         some cables are stated from both ends and this one is not
//	E_DEGREE       a card with more than two neighbours
//	E_CONFLICT     two cards in one place, or one card under two ids
//	W_CHAIN        a ring lacks one cable
//	W_MULTI        several rings
//	W_ISOLATED     a card in no link
//	W_ORDER        the order of the ring is not the order of the PCI addresses
//	W_ABSENT_CARD  a card that the table names is not there
//
// There is no E_PORT: neither format numbers ports, and left and right are judged by E_CONFLICT.
type Finding struct {
	Severity Severity
	Code     string
	Line     int      // from 1; 0: the table as a whole
	Pointer  string   // JSON pointer (RFC 6901) to the value: "/network/3/src_id"; "": the table as a whole
	Cards    []string // the cards concerned, as [ID.String] spells them
	Message  string
	Remedy   string
}

// HasErrors tells whether one of the findings is an error.
func HasErrors(findings []Finding) bool {
	for _, f := range findings {
		if f.Severity == SeverityError {
			return true
		}
	}
	return false
}

// perCode is how many findings of one code are told one by one.
const perCode = 20

// report gathers findings: no more than perCode of each code, and how many there were.
type report struct {
	findings []Finding
	times    map[string]int
}

// place is where in the document something stands.
type place struct {
	line    int
	pointer string
}

func (r *report) add(code string, at place, cards []string, message, remedy string) {
	if r.times == nil {
		r.times = map[string]int{}
	}
	r.times[code]++
	if r.times[code] > perCode {
		return
	}
	severity := SeverityError
	if code[0] == 'W' {
		severity = SeverityWarning
	}
	r.findings = append(r.findings, Finding{
		Severity: severity, Code: code, Line: at.line, Pointer: at.pointer, Cards: cards, Message: message, Remedy: remedy,
	})
}

// done is all findings. Where there were too many of one code, one more counts the rest.
func (r *report) done() []Finding {
	told := map[string]bool{}
	for _, f := range r.findings {
		rest := r.times[f.Code] - perCode
		if rest <= 0 || told[f.Code] {
			continue
		}
		told[f.Code] = true
		r.findings = append(r.findings, Finding{
			Severity: f.Severity, Code: f.Code, Message: fmt.Sprintf("%d more findings of this kind", rest), Remedy: "correct those above and check again",
		})
	}
	return r.findings
}
