// Access rules of the resources that the caller administers.

import { get, post } from "./api.js";
import { ask, choice, field } from "./dialogs.js";
import { h, replace, tag } from "./dom.js";
import { pager, table } from "./table.js";

const LIMIT = 100;
const RIGHTS = ["read", "write", "admin", "view"];

export const rulesPage = {
  title: "Access",
  every: 30_000,
  mount(root) {
    const wanted = { search: "", offset: 0, limit: LIMIT };
    const list = h("div");
    const refresh = async () => replace(list, view(await get("rules", wanted), wanted, refresh));
    const search = h("input", {
      type: "search",
      placeholder: "Search resources",
      "aria-label": "Search resources",
      oninput: () => {
        wanted.search = search.value;
        wanted.offset = 0;
        refresh();
      },
    });
    const give = h("button", { class: "plain", type: "button", onclick: () => grant(refresh) }, "Give rights");
    replace(root, h("div", { class: "head" }, h("h1", {}, "Access rules"), h("span", { class: "grow" }), search, give), list);
    return refresh;
  },
};

function view(answer, wanted, refresh) {
  const rules = answer.resources.flatMap((of) => of.rules.map((rule, at) => ({ ...rule, resource: of.resource, isBackup: of.is_backup, isFirst: at === 0 })));
  const part = (rule) => [
    rule.families.length ? h("div", {}, `families ${rule.families.join(", ")}`) : null,
    rule.prefix ? h("div", { class: "k" }, `rows ${rule.prefix}…`) : null,
  ];
  const take = (rule) =>
    rule.isBackup
      ? ""
      : h("button", { class: "plain small", type: "button", "aria-label": `Take ${rule.rights.join(", ")} on ${rule.resource} from ${rule.member}`, onclick: () => revoke(rule, refresh) }, "Take");
  return [
    answer.obeyed ? null : h("p", { class: "note" }, "Everybody may do everything: rules have an effect with --access rules."),
    h(
      "section",
      { class: "panel" },
      table({
        label: "Access rules",
        columns: [
          { name: "resource", cell: (rule) => (rule.isFirst ? [rule.resource, rule.isBackup ? tag("backup") : null] : h("span", { class: "soft" }, "″")) },
          { name: "member", cell: (rule) => rule.member },
          { name: "rights", cell: (rule) => rule.rights.map((right) => tag(right, right === "admin" ? "warn" : "")) },
          { name: "only", cell: part },
          { name: "", cell: take, kind: "w" },
        ],
        rows: rules,
        empty: "there are no rules that you administer",
      }),
      pager({ ...wanted, total: answer.total, shown: answer.resources.length, what: "resources", onpage: (offset) => ((wanted.offset = offset), refresh()) }),
    ),
  ];
}

async function revoke(rule, refresh) {
  const done = await ask({
    title: "Take these rights?",
    body: h("p", { class: "wide" }, `${rule.rights.join(", ")} on ${rule.resource} from ${rule.member}`),
    button: "Take",
    danger: true,
    send: () => change("revoke", rule),
  });
  if (done) refresh();
}

function change(kind, { resource, member, rights, families, prefix }) {
  return post("rules", { change: kind, resource, member, rights, families, prefix });
}

async function grant(refresh) {
  const input = (name, attributes) => h("input", { autocomplete: "off", spellcheck: "false", "aria-label": name, ...attributes });
  const resource = input("Resource", { required: true, placeholder: "cluster, instance or instance/table" });
  const member = input("Member", { required: true, placeholder: "NAME, group:NAME, …" });
  const families = input("Families", { placeholder: "all" });
  const prefix = input("Prefix of rows", { placeholder: "all" });
  const right = choice("Right", [...RIGHTS, "read and write"], "read");
  const done = await ask({
    title: "Give rights",
    body: [field("Resource", resource), field("Member", member), field("Right", right), field("Families, with commas", families), field("Prefix of rows", prefix)],
    button: "Give",
    send: () =>
      change("grant", {
        resource: resource.value.trim(),
        member: member.value.trim(),
        rights: right.value.split(" and "),
        families: families.value.split(",").map((name) => name.trim()).filter((name) => name),
        prefix: prefix.value,
      }),
  });
  if (done) refresh();
}
