package manual_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestSite_HomeFitsTheScreen(t *testing.T) {
	url, _ := serveSite(t)
	tab := browser.Tab(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, size := range [][2]int{{deskWidth, deskHeight}, {tallWidth, tallHeight}} {
			for _, fault := range look(tab, url+"/", size[0], size[1], scheme) {
				t.Errorf("%v, %s: %s", size, scheme, fault)
			}
			var height int
			tab.Eval("document.documentElement.scrollHeight", &height)
			if size[0] == deskWidth && height > deskHeight {
				t.Errorf("the page has %d pixels, and the screen %d", height, deskHeight)
			}
		}
	}
	tab.Prefer("prefers-reduced-motion", "reduce")
	tab.Until(pageTimeout, "document.getAnimations().length === 0")
}

// targetOf is a function of the page: what is wrong with the target of a link. A number in bold is a figure for
// which the link is the evidence: the section that it leads to has it.
const targetOf = `(async (link) => {
	const answer = await fetch(link.href)
	if (!answer.ok) return ['answers ' + answer.status]
	const target = new DOMParser().parseFromString(await answer.text(), 'text/html')
	const anchor = new URL(link.href).hash.slice(1)
	const section = anchor ? target.getElementById(anchor) : target.querySelector('article')
	if (!section) return ['has no #' + anchor]
	const figure = link.querySelector('strong')?.textContent.match(/[\d,.]*\d/)?.[0]
	let text = ''
	for (let e = section; e && (e === section || !(e.tagName <= section.tagName && /^H\d$/.test(e.tagName))); e = e.nextElementSibling) text += e.textContent
	return !figure || text.replaceAll(',', '').includes(figure.replaceAll(',', '')) ? [] : ['does not have ' + figure]
})`

func TestSite_HomeLinksToPagesThatSayWhatItSays(t *testing.T) {
	url, _ := serveSite(t)
	tab := browser.Tab(t)
	tab.Open(url+"/", deskWidth, deskHeight, "light")
	var hrefs []string
	links := fmt.Sprintf("[...document.querySelectorAll('a[href]')].filter(a => a.href.startsWith(%q))", url)
	tab.Eval(links+".map(a => a.getAttribute('href'))", &hrefs)
	for _, want := range []string{"start/", "concepts/", "why/", "correctness/", "performance/"} {
		if !strings.Contains(strings.Join(hrefs, " ")+" ", " "+want+" ") {
			t.Errorf("no link to %s in %q", want, hrefs)
		}
	}
	for i, href := range hrefs {
		var faults []string
		tab.Eval(fmt.Sprintf("%s(%s[%d])", targetOf, links, i), &faults)
		for _, fault := range faults {
			t.Errorf("%s %s", href, fault)
		}
	}
}
