package show

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/contiv-agent/contiv-agent/client"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/kv"
)

// Items writes items as text, as JSON, as keys alone, or as documents that put and diff read.
func Items(w io.Writer, format string, items []client.Item) error {
	switch format {
	case "text":
		tw := terminal.NewTable(w)
		for _, i := range items {
			fmt.Fprintf(tw, "%s\t%s\n", terminal.Plain(i.Key), terminal.Plain(withReason(i.State.String(), i.Why)))
		}
		return tw.Flush()
	case name:
		for _, i := range items {
			fmt.Fprintln(w, terminal.Plain(i.Key))
		}
		return nil
	case "json":
		type line struct {
			Key    string            `json:"key"`
			State  string            `json:"state"`
			Why    string            `json:"why,omitempty"`
			Labels map[string]string `json:"labels,omitempty"`
			Value  json.RawMessage   `json:"value"`
		}
		lines := []line{}
		for _, i := range items {
			value, err := kv.MarshalJSON(i.Message)
			if err != nil {
				return fmt.Errorf("%s: %w", i.Key, err)
			}
			lines = append(lines, line{i.Key, i.State.String(), i.Why, i.Labels, value})
		}
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(lines)
	}
	text, err := client.WriteDocuments(items)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// Change prints the result of a successful change.
func Change(w io.Writer, verb string, items int, change *client.Change) error {
	_, err := fmt.Fprintf(w, "%s %d items\n", verb, items)
	for _, key := range change.Pending() {
		fmt.Fprintf(w, "PENDING        %s\n", terminal.Plain(key))
	}
	for _, key := range change.Unimplemented() {
		fmt.Fprintf(w, "UNIMPLEMENTED  %s\n", terminal.Plain(key))
	}
	return err
}
