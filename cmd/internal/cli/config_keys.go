package cli

import (
	"maps"
	"reflect"
	"slices"

	"github.com/hyperaccel/lpuctl/internal/strictyaml"
)

// ConfigKeys returns the keys that a config file can have, each once whatever it stands
// under; "KEY/*" says that below a key there can be any.
func ConfigKeys() []string {
	keys := map[string]bool{}
	addKeys(keys, "", reflect.TypeFor[Config]())
	return slices.Sorted(maps.Keys(keys))
}

func addKeys(keys map[string]bool, above string, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		addKeys(keys, above, t.Elem())
	case reflect.Map:
		keys[above+"/*"] = true
	case reflect.Struct:
		for key, value := range strictyaml.Fields(t) {
			keys[key] = true
			addKeys(keys, key, value)
		}
	}
}
