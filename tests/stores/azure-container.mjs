// Makes a container in an Azurite: node azure-container.mjs HOST:PORT ACCOUNT KEY NAME
//
// The request is signed as "Authorize with Shared Key" of the reference of Azure Storage says.
import { createHmac } from "node:crypto";

const [address, account, key, name] = process.argv.slice(2);
const date = new Date().toUTCString();
const version = "2021-12-02";
const headers = `x-ms-date:${date}\nx-ms-version:${version}`;
// The account is in the path, too, because an emulator has no domains.
const resource = `/${account}/${account}/${name}\nrestype:container`;
// Eleven standard headers, all empty.
const text = ["PUT", ...Array(11).fill(""), headers, resource].join("\n");
const signature = createHmac("sha256", Buffer.from(key, "base64")).update(text, "utf8").digest("base64");
const answer = await fetch(`http://${address}/${account}/${name}?restype=container`, {
  method: "PUT",
  headers: {
    "x-ms-date": date,
    "x-ms-version": version,
    authorization: `SharedKey ${account}:${signature}`,
  },
});
if (answer.status !== 201) {
  console.error(`${answer.status}: ${await answer.text()}`);
  process.exit(1);
}
