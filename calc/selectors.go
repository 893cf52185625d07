package calc

import "github.com/contiv-agent/contiv-agent/selector"

// selectorCache keeps the selectors used last, by their text, because many rules use the same few. It has two
// generations: when the young one is full it becomes the old one, and the old one is dropped.
type selectorCache struct {
	young, old map[string]*selector.Selector
}

const selectorGeneration = 1024

// parse reads a selector.
func (x *selectorCache) parse(text string) (*selector.Selector, error) {
	if sel := x.young[text]; sel != nil {
		return sel, nil
	}
	sel := x.old[text]
	if sel == nil {
		var err error
		if sel, err = selector.Parse(text); err != nil {
			return nil, err
		}
	}
	if x.young == nil || len(x.young) >= selectorGeneration {
		x.young, x.old = make(map[string]*selector.Selector), x.young
	}
	x.young[text] = sel
	return sel, nil
}
