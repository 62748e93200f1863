"""Serves AWS KMS by moto at the port of the first argument, and asks for signatures.

Prints `ready`, the id and the secret of an access key, and the ids of two keys. The first key has the alias `stele`. From then on,
requests are refused that are not signed with the access key, or that its user may not make.
"""

import json
import sys
import threading

import boto3
from moto import settings
from moto.server import ThreadedMotoServer

REGION = "eu-west-1"


def main() -> None:
    url = f"http://127.0.0.1:{sys.argv[1]}"
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]), verbose=False)
    server.start()
    anybody = {"endpoint_url": url, "region_name": REGION, "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    iam = boto3.client("iam", **anybody)
    kms = boto3.client("kms", **anybody)
    iam.create_user(UserName="stele")
    statement = {"Effect": "Allow", "Action": ["kms:Encrypt", "kms:Decrypt"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName="stele", PolicyName="keys", PolicyDocument=policy)
    access = iam.create_access_key(UserName="stele")["AccessKey"]
    keys = [kms.create_key()["KeyMetadata"]["KeyId"] for _ in range(2)]
    kms.create_alias(AliasName="alias/stele", TargetKeyId=keys[0])
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    print("ready", access["AccessKeyId"], access["SecretAccessKey"], *keys, flush=True)
    threading.Event().wait()


main()
