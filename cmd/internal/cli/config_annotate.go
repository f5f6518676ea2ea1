package cli

import (
	"bytes"
	"strconv"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// Annotated is the configuration as YAML in which every value is followed by its origin;
// visit is called with each value's path and origin.
func (c *Config) Annotated(visit func(path, origin string)) ([]byte, error) {
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

// annotate walks down to the values that come from one place as a whole: the sections and
// the items of lists at the top do not, a model's list of drivers does.
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
			origin := c.Origin(p)
			visit(p, origin)
			if value.Kind == yamlv3.ScalarNode {
				value.LineComment = origin
			} else {
				key.LineComment = origin
			}
		}
	}
}
