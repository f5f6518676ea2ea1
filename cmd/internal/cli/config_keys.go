package cli

import (
	"reflect"
	"strings"
)

// ConfigKeys returns the keys that a config file can have, each once whatever it stands
// under; "KEY/*" says that below a key there can be any.
func ConfigKeys() []string {
	keys := map[string]bool{}
	addKeys(keys, "", reflect.TypeFor[Config]())
	var all []string
	for key := range keys {
		all = append(all, key)
	}
	return all
}

func addKeys(keys map[string]bool, above string, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		addKeys(keys, above, t.Elem())
	case reflect.Map:
		keys[above+"/*"] = true
	case reflect.Struct:
		for f := range t.Fields() {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && key == "":
				addKeys(keys, above, f.Type)
			case f.IsExported() && key != "" && key != "-":
				keys[key] = true
				addKeys(keys, key, f.Type)
			}
		}
	}
}
