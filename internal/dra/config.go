package dra

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/statefile"
)

// ConfigKind is the only kind of opaque parameters that the driver takes, of a claim or
// of its DeviceClass.
const ConfigKind = "LpuConfig"

// LpuConfig says what a container learns of the LPUs of a request.
type LpuConfig struct {
	APIVersion string `json:"apiVersion"` // statefile.APIVersion
	Kind       string `json:"kind"`       // ConfigKind
	Variables  string `json:"variables"`  // claim.List or claim.None; "" is List
}

// ParseConfig reads opaque parameters. Whatever it does not know is an error: a word that
// is misspelt would not do what the user wants.
func ParseConfig(raw []byte) (LpuConfig, error) {
	var c LpuConfig
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(&c)
	switch {
	case err != nil:
		return c, fmt.Errorf("the parameters for %s: %w", DriverName, err)
	case c.APIVersion != statefile.APIVersion || c.Kind != ConfigKind:
		return c, fmt.Errorf("the parameters for %s are %s of %s, and the driver knows only %s of %s",
			DriverName, c.Kind, c.APIVersion, ConfigKind, statefile.APIVersion)
	case c.Variables != "" && c.Variables != claim.List && c.Variables != claim.None:
		return c, fmt.Errorf("the parameters for %s: variables is %q, and can be %s or %s", DriverName, c.Variables, claim.List, claim.None)
	case d.More():
		return c, fmt.Errorf("the parameters for %s: something follows the object", DriverName)
	}
	return c, nil
}
