package main

import (
	"bytes"
	"strconv"

	"github.com/spf13/cobra"
	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

func newConfigCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show or check the configuration",
		Long: `The configuration is one optional file, ` + defaultConfigFile + `. It says where the CDI spec goes and
adds device models to the built-in table, or changes them. A value is taken from the flag, else from the
environment, else from the file, else it is built in.`,
		Example: `  lpuctl config show
  lpuctl config check ./config.yaml`,
	}
	cmd.AddCommand(newConfigShowCommand(a), newConfigCheckCommand(a))
	return cmd
}

func newConfigShowCommand(a *app) *cobra.Command {
	f := formatYAML
	cmd := &cobra.Command{
		Use:     "show",
		Aliases: []string{"view"},
		Short:   "Print the effective configuration and where each value comes from",
		Example: `  lpuctl config show
  lpuctl config show -o json | jq .origins`,
		RunE: func(*cobra.Command, []string) error {
			if err := a.loadConfig(); err != nil {
				return err
			}
			origins := map[string]string{}
			text, err := a.config.annotated(func(path, origin string) { origins[path] = origin })
			switch {
			case err != nil:
			case f == formatJSON:
				err = writeDocument(a.out, f, struct {
					*Config
					Origins map[string]string `json:"origins"`
				}{a.config, origins})
			default:
				_, err = a.out.Write(text)
			}
			return err
		},
	}
	a.formatFlag(cmd, &f, formatYAML, formatJSON)
	return cmd
}

// annotated is the configuration as YAML in which every value is followed by its origin; visit is called
// with each value's path and origin.
func (c *Config) annotated(visit func(path, origin string)) ([]byte, error) {
	data, err := yaml.Marshal(c)
	if err != nil {
		return nil, err
	}
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(data, &root); err != nil {
		return nil, err
	}
	c.annotate(root.Content[0], "", visit)
	var out bytes.Buffer
	e := yamlv3.NewEncoder(&out)
	e.SetIndent(2)
	err = e.Encode(&root)
	return out.Bytes(), err
}

// annotate walks down to the values that come from one place as a whole: the sections and the items of lists at the top do not,
// a model's list of drivers does.
func (c *Config) annotate(n *yamlv3.Node, path string, visit func(path, origin string)) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		p := key.Value
		if path != "" {
			p = path + "." + p
		}
		switch {
		case path == "" && value.Kind == yamlv3.MappingNode:
			c.annotate(value, p, visit)
		case path == "" && value.Kind == yamlv3.SequenceNode:
			for i, item := range value.Content {
				c.annotate(item, p+"."+strconv.Itoa(i), visit)
			}
		default:
			origin := c.origin(p)
			visit(p, origin)
			if value.Kind == yamlv3.ScalarNode {
				value.LineComment = origin
			} else {
				key.LineComment = origin
			}
		}
	}
}
