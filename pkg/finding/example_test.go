package finding_test

import (
	"fmt"

	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// The table of findings gives severity and remedy.
func ExampleNew() {
	f := finding.New(finding.PortErrors, "0000:40:01.1", "AER has counted 3 fatal errors", "")
	fmt.Println(f)
	fmt.Println(f.Severity, f.Remedy != "")
	// Output:
	// warning: 0000:40:01.1: AER has counted 3 fatal errors [port-errors]
	// warning true
}
